"""A store that takes no writes for a while, as on a full disk or a read-only mount."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from holdfast.storage.database.opening import OpenStore


@contextmanager
def full_disk(store: OpenStore) -> Iterator[None]:
    """The database may not grow by a page."""
    pages = _pragma(store, "page_count")[0]
    _pragma(store, f"max_page_count = {pages}")
    try:
        yield
    finally:
        _pragma(store, "max_page_count = 1073741823")


@contextmanager
def read_only(store: OpenStore) -> Iterator[None]:
    """The database may not be changed."""
    _pragma(store, "query_only = 1")
    try:
        yield
    finally:
        _pragma(store, "query_only = 0")


def _pragma(store: OpenStore, statement: str) -> Any:
    """Ask the one writer connection, outside of any transaction."""
    raw = store.writer.raw_connection()
    try:
        connection: Any = raw.driver_connection
        return connection.execute(f"PRAGMA {statement}").fetchone()
    finally:
        raw.close()
