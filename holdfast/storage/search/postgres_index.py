"""The index on Postgres: the same words as on SQLite in a `tsvector`, substrings by `pg_trgm`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from sqlalchemy import (
    BigInteger,
    ColumnElement,
    Text,
    and_,
    cast,
    column,
    delete,
    func,
    literal,
    literal_column,
    not_,
    or_,
    select,
    table,
    text,
)
from sqlalchemy.dialects.postgresql import TSQUERY
from sqlalchemy.exc import DBAPIError

from holdfast.domain.clock import now_ms
from holdfast.storage.database.engine import Db
from holdfast.storage.search.index import RANKED_MAX, Entry, Hit, Hits, Sort
from holdfast.storage.search.matching import SUBSTRING_CHARS_MIN
from holdfast.storage.search.query import Every, Leaf, Query, leaves
from holdfast.storage.search.scope import Filters, within
from holdfast.storage.search.words import fold, word_texts

CANDIDATES_MAX = 20_000
# A tsvector holds 1 MiB of words.
_VECTOR_BYTES_MAX = 1_000_000
_LOCK = 7_305_796_001

_documents = table(
    "search_documents",
    column("document", BigInteger),
    column("vector"),
    column("words", Text),
    column("folded", Text),
)
_TABLES = (
    # The words in order stand beside the vector: its own positions end at 16,383.
    "CREATE TABLE IF NOT EXISTS search_documents (document BIGINT PRIMARY KEY,"
    " vector TSVECTOR NOT NULL, words TEXT NOT NULL, folded TEXT NOT NULL,"
    " indexed_at BIGINT NOT NULL)",
    "CREATE INDEX IF NOT EXISTS search_documents_vector ON search_documents USING gin (vector)",
    "CREATE TABLE IF NOT EXISTS search_transcripts (number BIGSERIAL PRIMARY KEY,"
    " transcript_id TEXT NOT NULL UNIQUE, session_id TEXT NOT NULL, created_at BIGINT NOT NULL)",
    "CREATE TABLE IF NOT EXISTS search_state (key TEXT PRIMARY KEY, value BIGINT NOT NULL)",
)
_TRIGRAMS = (
    "CREATE EXTENSION IF NOT EXISTS pg_trgm",
    "CREATE INDEX IF NOT EXISTS search_documents_folded ON search_documents"
    " USING gin (folded gin_trgm_ops)",
)


class PostgresIndex:
    """One table of documents with two GIN indexes."""

    numbers_in_commit_order = False

    def exists(self, db: Db) -> bool:
        """Whether the tables were made; not whether they are whole."""
        known = text("SELECT to_regclass('search_state')")
        return db.connection().execute(known).scalar() is not None

    def lock(self, db: Db) -> None:
        """Be the only one who indexes until the transaction ends."""
        db.connection().execute(select(func.pg_advisory_xact_lock(_LOCK)))

    def create(self, db: Db) -> None:
        """Make the tables where they are missing."""
        for statement in _TABLES:
            db.connection().execute(text(statement))
        try:
            with db.begin_nested():
                for statement in _TRIGRAMS:
                    db.connection().execute(text(statement))
        except DBAPIError:
            # Not ours to install here: LIKE then reads every row, with the same answer.
            return

    def drop(self, db: Db) -> None:
        """Remove the tables, in whatever state they are."""
        for name in ("search_documents", "search_transcripts", "search_state"):
            db.connection().execute(text(f"DROP TABLE IF EXISTS {name}"))

    def add(self, db: Db, entries: Sequence[Entry]) -> None:
        """File the entries; one that is already there is filed anew."""
        if not entries:
            return
        at = now_ms()
        db.connection().execute(
            text(
                "INSERT INTO search_documents (document, vector, words, folded, indexed_at)"
                " VALUES (:document, array_to_tsvector(CAST(:lexemes AS text[])), :words,"
                " :folded, :at) ON CONFLICT (document) DO UPDATE SET vector = excluded.vector,"
                " words = excluded.words, folded = excluded.folded,"
                " indexed_at = excluded.indexed_at"
            ),
            [_row(entry, at) for entry in entries],
        )

    def remove(self, db: Db, documents: Sequence[int]) -> None:
        """Forget the documents."""
        db.connection().execute(
            delete(_documents).where(_documents.c.document.in_(list(documents)))
        )

    def find(
        self, db: Db, query: Query, filters: Filters, *, sort: Sort, offset: int, limit: int
    ) -> Hits:
        """A page of the documents that match by words."""
        joined, conditions, at = within(filters, _documents, _documents.c.document)
        conditions = [_condition(query), *conditions]
        some = (
            select(literal_column("1"))
            .select_from(joined)
            .where(*conditions)
            .limit(RANKED_MAX + 1)
            .subquery()
        )
        counted = db.connection().execute(select(func.count()).select_from(some)).scalar_one()
        ranked = counted <= RANKED_MAX
        score: Any = literal_column("0.0")
        order: list[Any] = [_documents.c.document.desc()]
        if ranked and sort == "relevance":
            score = func.ts_rank(_documents.c.vector, _tsquery(_any_word(query)))
            order = [score.desc(), *order]
        elif ranked:
            order = [at.desc(), *order]
        page = select(_documents.c.document, score.label("score")).select_from(joined)
        page = page.where(*conditions).order_by(*order).limit(limit).offset(offset)
        rows = db.connection().execute(page)
        return Hits([Hit(row[0], float(row[1])) for row in rows], ranked)

    def candidates(self, db: Db, query: Query, filters: Filters) -> Iterator[int]:
        """Documents that may match by substrings, newest first; the caller checks them."""
        joined, conditions, _ = within(filters, _documents, _documents.c.document)
        substrings = _substrings(query)
        if substrings is not None:
            conditions.append(substrings)
        found = (
            select(_documents.c.document)
            .select_from(joined)
            .where(*conditions)
            .order_by(_documents.c.document.desc())
            .limit(CANDIDATES_MAX)
        )
        for row in db.connection().execute(found):
            yield row[0]

    def merge(self, db: Db) -> None:
        """Autovacuum does it."""


def _row(entry: Entry, at: int) -> dict[str, Any]:
    found = word_texts(entry.text)
    lexemes: list[str] = []
    size = 0
    for word in dict.fromkeys(found):
        size += len(word.encode()) + 2
        if size > _VECTOR_BYTES_MAX:
            break
        lexemes.append(word)
    return {
        "document": entry.document,
        "lexemes": lexemes,
        "words": f" {' '.join(found)} ",
        "folded": fold(entry.text).replace("\x00", " "),
        "at": at,
    }


def _condition(query: Query) -> ColumnElement[bool]:
    if isinstance(query, Leaf):
        return _leaf_condition(query)
    parts = [_condition(part) for part in query.parts]
    if isinstance(query, Every):
        return and_(*parts, *(not_(_condition(part)) for part in query.without))
    return or_(*parts)


def _leaf_condition(leaf: Leaf) -> ColumnElement[bool]:
    lexemes = [f"'{word}'" for word in leaf.words]
    if leaf.prefix:
        lexemes[-1] += ":*"
    has_words: ColumnElement[bool] = _documents.c.vector.op("@@")(_tsquery(" & ".join(lexemes)))
    if len(leaf.words) == 1:
        return has_words
    # Words hold neither % nor _, so the phrase is its own pattern.
    phrase = f"% {' '.join(leaf.words)}" + ("%" if leaf.prefix else " %")
    return and_(has_words, _documents.c.words.like(phrase))


def _any_word(query: Query) -> str:
    lexemes = [
        f"'{word}'" + (":*" if leaf.prefix and word == leaf.words[-1] else "")
        for leaf in leaves(query)
        for word in leaf.words
    ]
    return " | ".join(dict.fromkeys(lexemes))


def _tsquery(lexemes: str) -> ColumnElement[Any]:
    return cast(literal(lexemes, Text), TSQUERY)


def _substrings(query: Query) -> ColumnElement[bool] | None:
    """A condition that every substring hit fulfils, or None when nothing narrows the search."""
    if isinstance(query, Leaf):
        if len(query.text) < SUBSTRING_CHARS_MIN:
            return None
        return _documents.c.folded.contains(query.text, autoescape=True)
    parts = [_substrings(part) for part in query.parts]
    known = [part for part in parts if part is not None]
    if isinstance(query, Every):
        return and_(*known) if known else None
    return or_(*known) if len(known) == len(parts) else None
