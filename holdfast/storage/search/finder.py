"""One search: index what is missing, find, and show each hit with its surroundings."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import structlog
from sqlalchemy import select
from sqlalchemy.exc import DBAPIError

from holdfast.storage.database.engine import Db, Store
from holdfast.storage.database.rows import table
from holdfast.storage.database.tables import Message
from holdfast.storage.database.tables_history import PtyTranscript
from holdfast.storage.database.trouble import StoreBusy, StoreUnwritable, is_passing
from holdfast.storage.search.hits import show
from holdfast.storage.search.index import Hit, Hits, Index, Sort, index_of
from holdfast.storage.search.indexer import Progress, catch_up, progress, reset
from holdfast.storage.search.matching import SUBSTRING_CHARS_MIN, Text
from holdfast.storage.search.projection import message_text, transcript_text
from holdfast.storage.search.query import Query, leaves, parse
from holdfast.storage.search.scope import TRANSCRIPTS, Filters

LIMIT_DEFAULT = 50
_CHUNK = 200
_messages, _terminals = table(Message), table(PtyTranscript)
_log = structlog.get_logger(__name__)


@dataclass(frozen=True)
class Search:
    """What somebody looks for."""

    text: str
    filters: Filters
    sort: Sort = "relevance"
    limit: int = LIMIT_DEFAULT
    offset: int = 0


@dataclass(frozen=True)
class Answer:
    """What was found, and how far it can be trusted."""

    items: list[dict[str, Any]] = field(default_factory=list)
    ranked: bool = True
    complete: bool = True
    matched: str = "words"  # words | substrings
    index: dict[str, Any] = field(default_factory=dict)
    more: bool = False


def find(store: Store, search: Search) -> Answer:
    """Answer a search over every committed message. Any text is answered, never with an error."""
    query = parse(search.text)
    if query is None:
        return Answer(index=progress(store).to_json())
    try:
        return _find(store, query, search)
    except DBAPIError as error:
        if is_passing(error):
            raise
        _log.warning("search.index_damaged", error=str(error.orig))
    try:
        reset(store)
        return _find(store, query, search)
    except DBAPIError as error:
        return Answer(complete=False, index={"state": "damaged", "message": str(error.orig)})


def _find(store: Store, query: Query, search: Search) -> Answer:
    index = index_of(store)
    done = _catch_up(store)
    return store.read(lambda db: _page(db, index, query, search, done))


def _catch_up(store: Store) -> Progress:
    try:
        return catch_up(store)
    except (StoreBusy, StoreUnwritable) as error:
        # What is indexed can be read although nothing can be written now.
        _log.warning("search.not_caught_up", error=str(error))
        return progress(store)


def _page(db: Db, index: Index, query: Query, search: Search, done: Progress) -> Answer:
    if not index.exists(db):
        return Answer(complete=False, index=done.to_json())
    wanted = search.limit + 1
    found = index.find(
        db, query, search.filters, sort=search.sort, offset=search.offset, limit=wanted
    )
    substrings = (
        not found.items
        and any(len(leaf.text) >= SUBSTRING_CHARS_MIN for leaf in leaves(query))
        and (search.offset == 0 or not _any_words(db, index, query, search.filters))
    )
    if substrings:
        found = _by_substrings(db, index, query, search, wanted)
    shown = show(db, found.items[: search.limit], leaves(query), substrings=substrings)
    return Answer(
        items=shown,
        ranked=found.ranked,
        complete=done.behind == 0,
        matched="substrings" if substrings and shown else "words",
        index=done.to_json(),
        more=len(found.items) > search.limit,
    )


def _any_words(db: Db, index: Index, query: Query, filters: Filters) -> bool:
    return bool(index.find(db, query, filters, sort="recency", offset=0, limit=1).items)


def _by_substrings(db: Db, index: Index, query: Query, search: Search, wanted: int) -> Hits:
    """The newest documents that really hold the substrings; nothing to rank them by."""
    chunk: list[int] = []
    hits: list[Hit] = []
    needed = search.offset + wanted
    for document in index.candidates(db, query, search.filters):
        chunk.append(document)
        if len(chunk) == _CHUNK:
            hits += _checked(db, query, chunk)
            chunk = []
            if len(hits) >= needed:
                break
    hits += _checked(db, query, chunk)
    return Hits(hits[search.offset : needed], ranked=not hits)


def _checked(db: Db, query: Query, documents: list[int]) -> list[Hit]:
    texts = texts_of(db, documents)
    return [
        Hit(document, 0.0)
        for document in documents
        if document in texts and Text(texts[document]).matches(query, substrings=True)
    ]


def texts_of(db: Db, documents: list[int]) -> dict[int, str]:
    """The searched text of each document."""
    message = _messages.c
    rows = select(
        message.number, message.role, message.content, message.tool_name, message.tool_calls
    ).where(message.number.in_([document for document in documents if document > 0]))
    texts = {
        row.number: message_text(row.role, row.content, row.tool_name, row.tool_calls)
        for row in db.connection().execute(rows)
    }
    terminals = (
        select(TRANSCRIPTS.c.number, _terminals.c.text)
        .join_from(TRANSCRIPTS, _terminals, _terminals.c.id == TRANSCRIPTS.c.transcript_id)
        .where(TRANSCRIPTS.c.number.in_([-document for document in documents if document < 0]))
    )
    for number, text in db.connection().execute(terminals):
        texts[-number] = transcript_text(text)
    return texts
