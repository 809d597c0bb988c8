"""Fills the index behind a durable watermark: in small batches, and never inside an append."""

from __future__ import annotations

import asyncio
import time
from dataclasses import asdict, dataclass
from typing import Any

import structlog
from sqlalchemy import BigInteger, Select, String, column, delete, exists, func, insert, select
from sqlalchemy import table as name_table
from sqlalchemy.exc import DBAPIError

from holdfast.domain.clock import now_ms
from holdfast.storage.database.engine import Db, Store
from holdfast.storage.database.rows import table
from holdfast.storage.database.tables import Message, SessionRow
from holdfast.storage.database.tables_history import PtyTranscript
from holdfast.storage.database.trouble import StoreBusy, StoreUnwritable, is_passing, unwritable
from holdfast.storage.search.index import Entry, Index, index_of
from holdfast.storage.search.projection import message_text, transcript_text
from holdfast.storage.search.scope import TERMINAL_ROLE, TRANSCRIPTS

# Raised when the words or the projection change: an index of another version is built anew.
INDEX_VERSION = 3
# One batch holds the write for about a tenth of a second.
BATCH_MESSAGES_MAX = 400
BATCH_CHARS_MAX = 200_000
CATCH_UP_BUDGET_S = 8.0
# On Postgres a lower number may be committed after a higher one, but not this much later.
SETTLED_AFTER_MS = 60_000
PAUSE_MIN_S, PAUSE_MAX_S = 2.0, 30.0

_messages, _sessions, _terminals = table(Message), table(SessionRow), table(PtyTranscript)
_state = name_table("search_state", column("key", String), column("value", BigInteger))
_documents = name_table(
    "search_documents", column("document", BigInteger), column("indexed_at", BigInteger)
)
_log = structlog.get_logger(__name__)


@dataclass(frozen=True)
class Progress:
    """How far the index is. `behind` is at most how many messages are not in it yet."""

    state: str  # ready | building
    watermark: int
    newest: int
    behind: int

    def to_json(self) -> dict[str, Any]:
        """As the wire shows it."""
        return asdict(self)


def progress(store: Store) -> Progress:
    """How far the index is now."""
    index = index_of(store)
    return store.read(lambda db: _progress(db, index))


def catch_up(store: Store, *, budget_s: float = CATCH_UP_BUDGET_S) -> Progress:
    """Index what is missing, for as long as the budget; answers how far it came."""
    index = index_of(store)
    deadline = time.monotonic() + budget_s
    cursor: int | None = None
    while True:
        now = store.read(lambda db: _progress(db, index))
        if now.behind == 0:
            return now
        added, cursor = store.write(lambda db, since=cursor: _batch(db, index, since))  # type: ignore[misc]
        if time.monotonic() > deadline or added == 0:
            return store.read(lambda db: _progress(db, index))


def reset(store: Store) -> None:
    """Throw the index away and begin an empty one; searches fill it again."""
    index = index_of(store)
    store.write(lambda db: _begin_anew(db, index))


def forget(db: Db, index: Index, session_id: str) -> None:
    """Take a session's texts out of the index, before its rows go; the caller holds its lock.

    A damaged index begins anew: without the texts of anybody.
    """
    try:
        with db.begin_nested():
            _remove(db, index, session_id)
    except DBAPIError as error:
        if is_passing(error) or unwritable(error) is not None:
            raise
        _log.warning("search.index_begun_anew", session_id=session_id, error=str(error.orig))
        _begin_anew(db, index)


async def keep_indexed(store: Store) -> None:
    """Index what arrives, until cancelled. A failure is logged and tried again later."""
    pause = PAUSE_MIN_S
    while True:
        try:
            worked = await asyncio.to_thread(_keep_up, store)
            pause = PAUSE_MIN_S if worked else min(pause * 2, PAUSE_MAX_S)
        except (StoreBusy, StoreUnwritable, DBAPIError) as error:
            _log.warning("search.indexing_failed", error=str(error))
            pause = PAUSE_MAX_S
        await asyncio.sleep(pause)


def _keep_up(store: Store) -> bool:
    """One round of housekeeping; whether there was anything to do."""
    if progress(store).behind == 0:
        return False
    try:
        catch_up(store, budget_s=1.0)
        store.write(index_of(store).merge)
    except DBAPIError as error:
        if is_passing(error):
            raise
        reset(store)
    return True


def _begin_anew(db: Db, index: Index) -> None:
    index.lock(db)
    index.drop(db)
    _create(db, index)


def _remove(db: Db, index: Index, session_id: str) -> None:
    if not index.exists(db):
        return
    numbers = select(_messages.c.number).where(_messages.c.session_id == session_id)
    index.remove(db, [int(row[0]) for row in db.connection().execute(numbers)])
    mine = TRANSCRIPTS.c.session_id == session_id
    terminals = db.connection().execute(select(TRANSCRIPTS.c.number).where(mine))
    index.remove(db, [-int(row[0]) for row in terminals])
    db.connection().execute(delete(TRANSCRIPTS).where(mine))


def _progress(db: Db, index: Index) -> Progress:
    last = _wanted().order_by(_messages.c.number.desc()).limit(1)
    newest = int(db.connection().execute(last.with_only_columns(_messages.c.number)).scalar() or 0)
    if not index.exists(db) or _value(db, "version") != INDEX_VERSION:
        return Progress("building", 0, newest, newest + _count(db, select(_terminals.c.id)))
    watermark = _value(db, "watermark")
    terminals = _count(db, _missing_terminals())
    if index.numbers_in_commit_order:
        behind = max(0, newest - watermark)
    else:
        behind = _count(db, _missing(index, watermark).limit(None))
        watermark = newest - behind
    behind += terminals
    return Progress("building" if behind else "ready", watermark, newest, behind)


def _batch(db: Db, index: Index, cursor: int | None) -> tuple[int, int]:
    """Index one batch after `cursor`; how many, and where the next batch begins."""
    index.lock(db)
    if not index.exists(db) or _value(db, "version") != INDEX_VERSION:
        index.drop(db)
        _create(db, index)
        cursor = None
    watermark = _value(db, "watermark")
    start = watermark if cursor is None else max(cursor, watermark)
    entries, last = _next_messages(db, index, start)
    if not entries:
        entries = _next_terminals(db)
    index.add(db, entries)
    _advance(db, index, watermark, last)
    if not entries and cursor is not None and cursor > watermark:
        # A lower number may have been committed meanwhile: look again from the watermark.
        return 1, watermark
    return len(entries), last


def _next_messages(db: Db, index: Index, start: int) -> tuple[list[Entry], int]:
    entries: list[Entry] = []
    chars, last = 0, start
    for row in db.connection().execute(_missing(index, start)):
        entry = _message_entry(row)
        entries.append(entry)
        last = row.number
        chars += len(entry.text)
        if chars >= BATCH_CHARS_MAX:
            break
    return entries, last


def _next_terminals(db: Db) -> list[Entry]:
    entries: list[Entry] = []
    for row in db.connection().execute(_missing_terminals().limit(20)).all():
        numbered = db.connection().execute(
            insert(TRANSCRIPTS)
            .values(transcript_id=row.id, session_id=row.session_id, created_at=row.created_at)
            .returning(TRANSCRIPTS.c.number)
        )
        text = transcript_text(row.text)
        number = int(numbered.scalar_one())
        entries.append(Entry(-number, row.session_id, row.created_by, TERMINAL_ROLE, text))
    return entries


def _wanted() -> Select[Any]:
    """The messages that belong in the index: not those that a purge kept for forks alone."""
    message = _messages.c
    wanted = select(
        message.number,
        message.session_id,
        message.role,
        message.content,
        message.tool_name,
        message.tool_calls,
        _sessions.c.created_by,
    ).join_from(_messages, _sessions, _sessions.c.id == message.session_id, isouter=True)
    return wanted.where(_sessions.c.purged.is_not(True))


def _missing(index: Index, start: int) -> Select[Any]:
    wanted = _wanted().where(_messages.c.number > start)
    if not index.numbers_in_commit_order:
        filed = select(1).where(_documents.c.document == _messages.c.number)
        wanted = wanted.where(~exists(filed))
    return wanted.order_by(_messages.c.number).limit(BATCH_MESSAGES_MAX)


def _missing_terminals() -> Select[Any]:
    filed = select(1).where(TRANSCRIPTS.c.transcript_id == _terminals.c.id)
    return (
        select(
            _terminals.c.id,
            _terminals.c.session_id,
            _terminals.c.created_at,
            _terminals.c.text,
            _sessions.c.created_by,
        )
        .join_from(_terminals, _sessions, _sessions.c.id == _terminals.c.session_id)
        .where(~exists(filed))
    )


def _message_entry(row: Any) -> Entry:
    text = message_text(row.role, row.content, row.tool_name, row.tool_calls)
    return Entry(row.number, row.session_id, row.created_by or "", row.role, text)


def _advance(db: Db, index: Index, watermark: int, last: int) -> None:
    if not index.numbers_in_commit_order:
        settled = select(func.max(_documents.c.document)).where(
            _documents.c.document > watermark,
            _documents.c.indexed_at < now_ms() - SETTLED_AFTER_MS,
        )
        last = db.connection().execute(settled).scalar() or watermark
    if last > watermark:
        moved = _state.update().where(_state.c.key == "watermark").values(value=last)
        db.connection().execute(moved)


def _create(db: Db, index: Index) -> None:
    index.create(db)
    rows = [{"key": "version", "value": INDEX_VERSION}, {"key": "watermark", "value": 0}]
    db.connection().execute(insert(_state), rows)


def _value(db: Db, key: str) -> int:
    found = db.connection().execute(select(_state.c.value).where(_state.c.key == key)).scalar()
    return int(found or 0)


def _count(db: Db, rows: Select[Any]) -> int:
    counted = select(func.count()).select_from(rows.order_by(None).subquery())
    return int(db.connection().execute(counted).scalar_one())
