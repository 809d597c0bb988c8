"""What either database's index can do; the rest of search does not know which one it has."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from holdfast.storage.database.engine import Db, Store
from holdfast.storage.search.query import Query
from holdfast.storage.search.scope import Filters

Sort = Literal["relevance", "recency"]

# Ranking needs every match; beyond this many the newest come first and the answer says so.
RANKED_MAX = 20_000


@dataclass(frozen=True)
class Entry:
    """One text on its way into the index. Messages have numbers above 0, terminals below."""

    document: int
    session_id: str
    operator_id: str
    role: str
    text: str


@dataclass(frozen=True)
class Hit:
    """A document that matches; a greater score is better."""

    document: int
    score: float


@dataclass(frozen=True)
class Hits:
    """One page of hits, and whether all matches were ranked."""

    items: list[Hit]
    ranked: bool


class Index(Protocol):
    """Words and substrings of every entry."""

    # Whether a message with a lower number was always committed before one with a higher.
    numbers_in_commit_order: bool

    def exists(self, db: Db) -> bool:
        """Whether the tables were made; not whether they are whole."""
        ...

    def lock(self, db: Db) -> None:
        """Be the only one who indexes until the transaction ends."""
        ...

    def create(self, db: Db) -> None:
        """Make the tables where they are missing."""
        ...

    def drop(self, db: Db) -> None:
        """Remove the tables, in whatever state they are."""
        ...

    def add(self, db: Db, entries: Sequence[Entry]) -> None:
        """File the entries; one that is already there is filed anew."""
        ...

    def remove(self, db: Db, documents: Sequence[int]) -> None:
        """Forget the documents."""
        ...

    def find(
        self, db: Db, query: Query, filters: Filters, *, sort: Sort, offset: int, limit: int
    ) -> Hits:
        """A page of the documents that match by words."""
        ...

    def candidates(self, db: Db, query: Query, filters: Filters) -> Iterator[int]:
        """Documents that may match by substrings, newest first; the caller checks them.

        Every one within the filters when nothing in the query narrows the search.
        """
        ...

    def merge(self, db: Db) -> None:
        """A small piece of housekeeping."""
        ...


def index_of(store: Store) -> Index:
    """The index of this store's database."""
    from holdfast.storage.search.postgres_index import PostgresIndex  # noqa: PLC0415 - they import this file
    from holdfast.storage.search.sqlite_index import SqliteIndex  # noqa: PLC0415

    return SqliteIndex() if store.is_sqlite else PostgresIndex()
