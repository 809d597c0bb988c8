"""Processes queue for the write on a file: SQLite's own busy handler starves some of them."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from storage.trouble import StoreBusy

_POLL_S = 0.002
_POLL_MAX_S = 0.020


class WriteLock:
    """An advisory lock that dies with its process."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: int | None = None

    @contextmanager
    def held(self, deadline: float) -> Iterator[None]:
        """Hold the lock; StoreBusy after `deadline` (monotonic)."""
        file = self._open()
        pause = _POLL_S
        while not _try_lock(file):
            if time.monotonic() > deadline:
                raise StoreBusy("another process holds the database; try again")
            time.sleep(pause)
            pause = min(pause * 1.5, _POLL_MAX_S)
        try:
            yield
        finally:
            fcntl.flock(file, fcntl.LOCK_UN)

    def close(self) -> None:
        """Close the lock file."""
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def _open(self) -> int:
        if self._file is None:
            self._file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        return self._file


def _try_lock(file: int) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
