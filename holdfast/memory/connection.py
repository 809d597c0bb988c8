"""A connection to an index file, with sqlite-vec only where it is wanted and loads in time."""

from __future__ import annotations

import importlib
import os
import threading
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

from holdfast.storage.database.sqlite_driver import dbapi_module

Driver: Any = dbapi_module()
Connection = Any

BUSY_TIMEOUT_S = 20.0
LOAD_TIMEOUT_S = 30.0


def connect(path: Path, *, vectors: bool) -> Connection:
    """Open a file that is there. Without `vectors` no extension may be loaded (O-002).

    No WAL: its side files are found by name, and the file is swapped for another of that name.
    """
    uri = f"{path.absolute().as_uri()}?mode=rw"
    connection = Driver.connect(
        uri, uri=True, isolation_level=None, check_same_thread=False, timeout=BUSY_TIMEOUT_S
    )
    if vectors and loading_error() is None:
        load(connection)
    return connection


def create(path: Path) -> None:
    """An empty file that only its owner may read."""
    os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))


def has_vectors(connection: Connection) -> bool:
    """Whether sqlite-vec is loaded into this connection."""
    asked = "SELECT 1 FROM pragma_module_list WHERE name = 'vec0'"
    return connection.execute(asked).fetchone() is not None


def load(connection: Connection) -> None:
    """Load sqlite-vec, and forbid any other extension again."""
    extension = importlib.import_module("sqlite_vec").loadable_path()
    connection.enable_load_extension(True)
    try:
        connection.load_extension(extension)
    finally:
        connection.enable_load_extension(False)


@cache
def loading_error() -> str | None:
    """Why sqlite-vec cannot be used in this process, or None; tried once."""
    return try_loading(load, LOAD_TIMEOUT_S)


def try_loading(loader: Callable[[Connection], None], timeout_s: float) -> str | None:
    """Load into an empty database, on a thread of its own: who hangs there harms nobody (O-035)."""
    outcome: list[str | None] = []

    def attempt() -> None:
        connection = Driver.connect(":memory:")
        try:
            loader(connection)
            outcome.append(None)
        except (ImportError, AttributeError, OSError, Driver.Error) as error:
            outcome.append(f"{type(error).__name__}: {error}")
        finally:
            connection.close()

    thread = threading.Thread(target=attempt, name="load-sqlite-vec", daemon=True)
    thread.start()
    thread.join(timeout_s)
    return outcome[0] if outcome else f"sqlite-vec did not load within {timeout_s:.0f} s"
