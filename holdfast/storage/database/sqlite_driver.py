"""Which SQLite we use and how each connection is set up."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from types import ModuleType
from typing import Any

# The WAL-reset bug is mended in 3.51.3 and in 3.53; 3.52 has it still.
MENDED, STILL_BROKEN, MENDED_AGAIN = (3, 51, 3), (3, 52, 0), (3, 53, 0)


def dbapi_module() -> ModuleType:
    """The newest SQLite at hand: the system's has a bug that can corrupt a WAL file."""
    try:
        from pysqlite3 import dbapi2  # noqa: PLC0415 - a wheel that not every platform has
    except ImportError:
        return sqlite3
    return dbapi2  # type: ignore[no-any-return]


def is_safe(version: tuple[int, ...]) -> bool:
    """Whether this version of SQLite is free of the WAL-reset bug."""
    return MENDED <= version < STILL_BROKEN or version >= MENDED_AGAIN


def version_warning() -> str | None:
    """What to know about the SQLite at hand, and what to do; None when all is well."""
    driver = dbapi_module()
    if is_safe(tuple(driver.sqlite_version_info)):
        return None
    return (
        f"SQLite {driver.sqlite_version} has a bug that can damage the database when several"
        " processes use it (WAL reset, mended in 3.51.3 and 3.53). Install the package pysqlite3,"
        " use a newer SQLite, or set HOLDFAST_DATABASE_URL to a Postgres; keep backups until then"
    )


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
