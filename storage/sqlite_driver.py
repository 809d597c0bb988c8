"""Which SQLite we use and how each connection is set up."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from types import ModuleType
from typing import Any

SAFE_VERSION = (3, 51, 3)


def dbapi_module() -> ModuleType:
    """The newest SQLite at hand: the system's has a bug that can corrupt a WAL file."""
    try:
        from pysqlite3 import dbapi2  # noqa: PLC0415 - a wheel that not every platform has
    except ImportError:
        return sqlite3
    return dbapi2  # type: ignore[no-any-return]


def is_safe() -> bool:
    """Whether this SQLite is free of the WAL-reset bug."""
    return tuple(dbapi_module().sqlite_version_info) >= SAFE_VERSION


def connect_hook(synchronous: str) -> Callable[[Any, Any], None]:
    """Set up a fresh connection; we send BEGIN ourselves."""

    def connect(connection: Any, _record: Any) -> None:
        connection.isolation_level = None
        cursor = connection.cursor()
        for pragma in (
            "journal_mode=WAL",
            f"synchronous={synchronous}",
            "busy_timeout=1000",
            "foreign_keys=ON",
            "cache_size=-16000",
            "temp_store=MEMORY",
            "mmap_size=268435456",
        ):
            cursor.execute(f"PRAGMA {pragma}")
        cursor.close()

    return connect
