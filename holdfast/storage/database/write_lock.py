"""Processes queue for the write on a file: SQLite's own busy handler starves some of them."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random

from holdfast.storage.database.trouble import StoreBusy

_NEXT_POLL_S = 0.001
_TURN_POLL_S = 0.006
# Its own: whoever seeds the generator that all share would make every process wait alike.
_random = Random()


class WriteLock:
    """An advisory lock that dies with its process, and that nobody can keep by asking quickly.

    Whoever wants to write first takes the turn, and gives it back once it holds the lock. So the
    one who just wrote cannot be next again while another waits.
    """

    def __init__(self, path: Path) -> None:
        self._paths = (path, path.with_name(path.name + ".turn"))
        self._files: tuple[int, int] | None = None

    @contextmanager
    def held(self, deadline: float) -> Iterator[None]:
        """Hold the lock; StoreBusy after `deadline` (monotonic)."""
        file, turn = self._open()
        _take(turn, deadline, lambda: _random.uniform(_NEXT_POLL_S, _TURN_POLL_S))
        try:
            _take(file, deadline, lambda: _NEXT_POLL_S)
        finally:
            fcntl.flock(turn, fcntl.LOCK_UN)
        try:
            yield
        finally:
            fcntl.flock(file, fcntl.LOCK_UN)

    def close(self) -> None:
        """Close the lock files."""
        files, self._files = self._files, None
        for file in files or ():
            os.close(file)

    def _open(self) -> tuple[int, int]:
        if self._files is None:
            flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
            file, turn = (os.open(path, flags, 0o600) for path in self._paths)
            self._files = (file, turn)
        return self._files


def _take(file: int, deadline: float, pause_s: Callable[[], float]) -> None:
    while True:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > deadline:
                raise StoreBusy("another process holds the database; try again") from None
            time.sleep(pause_s())
        else:
            return
