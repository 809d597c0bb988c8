"""The index on SQLite: contentless FTS5 tables, so that no text is stored a second time."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

from sqlalchemy import Integer, Select, column, func, literal_column, select, table, text

from holdfast.storage.database.engine import Db
from holdfast.storage.database.sqlite_driver import dbapi_module
from holdfast.storage.search.index import RANKED_MAX, Entry, Hit, Hits, Sort
from holdfast.storage.search.matching import SUBSTRING_CHARS_MIN
from holdfast.storage.search.query import Every, Leaf, Query, leaves
from holdfast.storage.search.scope import Filters, within
from holdfast.storage.search.words import fold, indexed_text, trigrams

CANDIDATES_MAX = 20_000
# Trigrams of one substring that are looked up; what they let through is checked anyway.
TRIGRAMS_MAX = 12
MERGE_PAGES = 64
CHUNK_MIN, CHUNK_MAX = 250, 8_000
NEWEST_MAX = 1_000
_CONTENTLESS_DELETE_SINCE = (3, 43, 0)

_words = table("search_words", column("rowid", Integer))
_trigrams = table("search_trigrams", column("rowid", Integer))


class SqliteIndex:
    """Words in one FTS5 table, with the session's scope beside them; trigrams in another."""

    numbers_in_commit_order = True

    def exists(self, db: Db) -> bool:
        """Whether the tables were made; not whether they are whole."""
        known = text("SELECT 1 FROM sqlite_schema WHERE name = 'search_state'")
        return db.connection().execute(known).first() is not None

    def lock(self, db: Db) -> None:
        """SQLite has one writer anyway."""

    def create(self, db: Db) -> None:
        """Make the tables where they are missing."""
        forgets = dbapi_module().sqlite_version_info >= _CONTENTLESS_DELETE_SINCE
        delete = ", contentless_delete=1" if forgets else ""
        for statement in (
            # `ascii` takes every other character for a letter: `indexed_text` has split the rest.
            "CREATE VIRTUAL TABLE IF NOT EXISTS search_words USING fts5"
            f"(body, scope, tokenize='ascii', content=''{delete})",
            "CREATE VIRTUAL TABLE IF NOT EXISTS search_trigrams USING fts5"
            f"(body, tokenize=\"ascii tokenchars '_'\", detail=none, content=''{delete})",
            "CREATE TABLE IF NOT EXISTS search_transcripts (number INTEGER PRIMARY KEY"
            " AUTOINCREMENT, transcript_id TEXT NOT NULL UNIQUE, session_id TEXT NOT NULL,"
            " created_at INTEGER NOT NULL)",
            "CREATE TABLE IF NOT EXISTS search_state"
            " (key TEXT PRIMARY KEY, value INTEGER NOT NULL)",
        ):
            db.connection().execute(text(statement))

    def drop(self, db: Db) -> None:
        """Remove the tables, in whatever state they are."""
        for statement in (
            # FTS5 cannot be dropped without its settings, should somebody have removed those.
            "CREATE TABLE IF NOT EXISTS search_words_config(k PRIMARY KEY, v) WITHOUT ROWID",
            "CREATE TABLE IF NOT EXISTS search_trigrams_config(k PRIMARY KEY, v) WITHOUT ROWID",
            "INSERT OR IGNORE INTO search_words_config VALUES ('version', 4)",
            "INSERT OR IGNORE INTO search_trigrams_config VALUES ('version', 4)",
            "DROP TABLE IF EXISTS search_words",
            "DROP TABLE IF EXISTS search_trigrams",
            "DROP TABLE IF EXISTS search_words_config",
            "DROP TABLE IF EXISTS search_trigrams_config",
            "DROP TABLE IF EXISTS search_transcripts",
            "DROP TABLE IF EXISTS search_state",
        ):
            db.connection().execute(text(statement))

    def add(self, db: Db, entries: Sequence[Entry]) -> None:
        """File the entries; one that is already there is filed anew."""
        if not entries:
            return
        words = [
            {"n": entry.document, "t": indexed_text(entry.text), "s": _scope_words(entry)}
            for entry in entries
        ]
        substrings = [
            {"n": entry.document, "t": " ".join(trigrams(fold(entry.text)))} for entry in entries
        ]
        connection = db.connection()
        connection.execute(
            text("INSERT OR REPLACE INTO search_words(rowid, body, scope) VALUES (:n, :t, :s)"),
            words,
        )
        connection.execute(
            text("INSERT OR REPLACE INTO search_trigrams(rowid, body) VALUES (:n, :t)"), substrings
        )

    def remove(self, db: Db, documents: Sequence[int]) -> None:
        """Forget the documents."""
        if not documents:
            return
        rows = [{"n": document} for document in documents]
        db.connection().execute(text("DELETE FROM search_words WHERE rowid = :n"), rows)
        db.connection().execute(text("DELETE FROM search_trigrams WHERE rowid = :n"), rows)

    def find(
        self, db: Db, query: Query, filters: Filters, *, sort: Sort, offset: int, limit: int
    ) -> Hits:
        """A page of the documents that match by words."""
        match = _match(query, filters)
        if any(leaf.prefix for leaf in leaves(query)):
            # FTS5 gathers all that a prefix finds before it gives out the first: ask once.
            count, newest = _newest(db, match)
            ranked = count <= RANKED_MAX
            page = [] if ranked else _first(db, filters, newest, offset + limit)
            if len(page) == offset + limit:
                return Hits([Hit(document, 0.0) for document in page[offset:]], ranked)
        else:
            ranked = _count(db, match) <= RANKED_MAX
        if not ranked:
            match = _narrowed(match, filters)
        if ranked and sort == "relevance":
            return Hits(_best(db, match, filters, offset, limit), ranked)
        joined, conditions, at = within(filters, _words, _words.c.rowid)
        latest = [at.desc()] if ranked else []
        found = (
            select(_words.c.rowid)
            .select_from(joined)
            .where(text("search_words MATCH :match"), *conditions)
            .order_by(*latest, _words.c.rowid.desc())
            .limit(limit)
            .offset(offset)
        )
        rows = db.connection().execute(found, {"match": match})
        return Hits([Hit(row[0], 0.0) for row in rows], ranked)

    def candidates(self, db: Db, query: Query, filters: Filters) -> Iterator[int]:
        """Documents that may match by substrings, newest first; the caller checks them."""
        joined, conditions, _ = within(filters, _trigrams, _trigrams.c.rowid)
        match = _trigram_match(query)
        if match is not None:
            conditions.append(literal_column("search_trigrams").bool_op("MATCH")(match))
        found: Select[Any] = (
            select(_trigrams.c.rowid)
            .select_from(joined)
            .where(*conditions)
            .order_by(_trigrams.c.rowid.desc())
            .limit(CANDIDATES_MAX)
        )
        for row in db.connection().execute(found):
            yield row[0]

    def merge(self, db: Db) -> None:
        """Merge a few pages of segments; `optimize` would hold the write for minutes."""
        for statement in (
            "INSERT INTO search_words(search_words, rank) VALUES ('merge', :pages)",
            "INSERT INTO search_trigrams(search_trigrams, rank) VALUES ('merge', :pages)",
        ):
            db.connection().execute(text(statement), {"pages": MERGE_PAGES})


def _count(db: Db, match: str) -> int:
    """How many match, counted no further than it matters."""
    some = select(_words.c.rowid).where(text("search_words MATCH :match")).limit(RANKED_MAX + 1)
    counted = select(func.count()).select_from(some.subquery())
    return int(db.connection().execute(counted, {"match": match}).scalar_one())


def _newest(db: Db, match: str) -> tuple[int, list[int]]:
    """How many match, counted no further than it matters, and the newest of them."""
    some = select(_words.c.rowid).where(text("search_words MATCH :match"))
    some = some.order_by(_words.c.rowid.desc()).limit(RANKED_MAX + 1)
    # Gathered once for both questions, and by SQLite: in Python 20,000 numbers take longer.
    found = some.cte("found").prefix_with("MATERIALIZED")
    counted = select(func.count()).select_from(found).scalar_subquery()
    newest = select(found.c.rowid, counted).order_by(found.c.rowid.desc()).limit(NEWEST_MAX)
    rows = db.connection().execute(newest, {"match": match}).all()
    return (rows[0][1] if rows else 0), [row[0] for row in rows]


def _first(db: Db, filters: Filters, documents: list[int], wanted: int) -> list[int]:
    """The first documents that the filters let through, no more than wanted."""
    found: list[int] = []
    start, size = 0, CHUNK_MIN
    while len(found) < wanted and (chunk := documents[start : start + size]):
        mine = _within(db, filters, chunk)
        found += [document for document in chunk if document in mine]
        start, size = start + size, min(size * 4, CHUNK_MAX)
    return found[:wanted]


def _best(db: Db, match: str, filters: Filters, offset: int, limit: int) -> list[Hit]:
    """A page of the best matches. Each is looked up only when it may be on the page."""
    score: Any = literal_column("-bm25(search_words, 1.0, 0.0)").label("score")
    best = select(_words.c.rowid, score).where(text("search_words MATCH :match"))
    found = db.connection().execute(
        best.order_by(score.desc(), _words.c.rowid.desc()), {"match": match}
    )
    hits: list[Hit] = []
    size = CHUNK_MIN
    while len(hits) < offset + limit and (chunk := found.fetchmany(size)):
        mine = _within(db, filters, [row[0] for row in chunk])
        hits += [Hit(row[0], float(row[1])) for row in chunk if row[0] in mine]
        size = min(size * 4, CHUNK_MAX)
    found.close()
    return hits[offset : offset + limit]


def _within(db: Db, filters: Filters, documents: list[int]) -> set[int]:
    """Those of the documents that the filters let through."""
    listed = func.json_each(json.dumps(documents)).table_valued("value", name="listed")
    joined, conditions, _ = within(filters, listed, listed.c.value)
    rows = db.connection().execute(select(listed.c.value).select_from(joined).where(*conditions))
    return {int(row[0]) for row in rows}


def _match(query: Query, filters: Filters) -> str:
    expression = f"body : ({_expression(query)})"
    if filters.session_id is not None:
        # One session's documents are few, so the index itself leaves the others out.
        return f'({expression}) AND (scope : "{_scope_word("s", filters.session_id)}")'
    return expression


def _narrowed(match: str, filters: Filters) -> str:
    """Leave out strangers' documents in the index too: the joins would read each to see it.

    Not while ranking: bm25 would count every document of the operator first.
    """
    scope = f'scope : "{_scope_word("o", filters.operator_id)}"'
    if filters.roles:
        roles = " OR ".join(f'"{_scope_word("r", role)}"' for role in filters.roles)
        return f"({match}) AND ({scope}) AND (scope : ({roles}))"
    return f"({match}) AND ({scope})"


def _expression(query: Query) -> str:
    """FTS5's own spelling. Words hold no character that means something to it."""
    if isinstance(query, Leaf):
        return f'"{" ".join(query.words)}"' + ("*" if query.prefix else "")
    if isinstance(query, Every):
        wanted = " AND ".join(f"({_expression(part)})" for part in query.parts)
        unwanted = " OR ".join(f"({_expression(part)})" for part in query.without)
        return f"({wanted}) NOT ({unwanted})" if unwanted else wanted
    return " OR ".join(f"({_expression(part)})" for part in query.parts)


def _trigram_match(query: Query) -> str | None:
    """An expression that every substring hit fulfils, or None when nothing narrows the search."""
    if isinstance(query, Leaf):
        return _leaf_trigrams(query.text)
    parts = [_trigram_match(part) for part in query.parts]
    known = [f"({part})" for part in parts if part is not None]
    if isinstance(query, Every):
        return " AND ".join(known) or None
    return " OR ".join(known) if len(known) == len(parts) else None


def _leaf_trigrams(needle: str) -> str | None:
    if len(needle) < SUBSTRING_CHARS_MIN:
        return None
    every = sorted(trigrams(needle))
    step = max(1, -(-len(every) // TRIGRAMS_MAX))
    return " AND ".join(f'"{trigram}"' for trigram in every[::step]) or None


def _scope_words(entry: Entry) -> str:
    kinds = (("o", entry.operator_id), ("s", entry.session_id), ("r", entry.role))
    return " ".join(_scope_word(kind, value) for kind, value in kinds)


def _scope_word(kind: str, value: str) -> str:
    return kind + "".join(letter for letter in value.lower() if letter.isalnum())
