"""Locks on files beside an index: one writer at a time, and no reader inside a swap."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

WRITER_TIMEOUT_S = 600.0
SWAP_TIMEOUT_S = 60.0
_PAUSE_FIRST_S, _PAUSE_MAX_S = 0.000_5, 0.02


class MemoryBusy(Exception):
    """Another process kept the index for too long; try again."""


@contextmanager
def writing(path: Path, *, within_s: float | None = None) -> Iterator[int]:
    """Be the only writer of the index at `path`, in all processes; yields the lock's file."""
    timeout_s = WRITER_TIMEOUT_S if within_s is None else within_s
    with _held(path.with_name(f"{path.name}.lock"), fcntl.LOCK_EX, timeout_s) as file:
        yield file


@contextmanager
def swapping(path: Path) -> Iterator[None]:
    """No reader is inside while the file's place is taken by another."""
    with _in_turn(path, fcntl.LOCK_EX):
        yield


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """The file keeps its place."""
    with _in_turn(path, fcntl.LOCK_SH):
        yield


@contextmanager
def _in_turn(path: Path, kind: int) -> Iterator[None]:
    """Who waits for the swap holds the turn: readers that follow each other cannot starve it."""
    with ExitStack() as held:
        with _held(path.with_name(f"{path.name}.turn"), fcntl.LOCK_EX, SWAP_TIMEOUT_S):
            held.enter_context(_held(path.with_name(f"{path.name}.swap"), kind, SWAP_TIMEOUT_S))
        yield


@contextmanager
def _held(path: Path, kind: int, timeout_s: float) -> Iterator[int]:
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        _take(file, kind, time.monotonic() + timeout_s)
        yield file
    finally:
        # Closing lets go of the lock, as a death does.
        os.close(file)


def _take(file: int, kind: int, deadline: float) -> None:
    pause_s = _PAUSE_FIRST_S
    while True:
        try:
            fcntl.flock(file, kind | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > deadline:
                raise MemoryBusy("the memory index is in use by another process") from None
            time.sleep(pause_s)
            pause_s = min(_PAUSE_MAX_S, pause_s * 2)
        else:
            return
