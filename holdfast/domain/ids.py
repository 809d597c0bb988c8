"""Ids are ULIDs; within one process each sorts after the last, also within a millisecond."""

from __future__ import annotations

import os
import threading

from ulid import ULID

from holdfast.domain.clock import now_ms

_RANDOM_BITS = 80
_lock = threading.Lock()
_last = 0


def new_id() -> str:
    """A fresh ULID, greater than every id that this process made before."""
    global _last
    fresh = (now_ms() << _RANDOM_BITS) | int.from_bytes(os.urandom(10), "big")
    with _lock:
        _last = fresh if fresh > _last else _last + 1
        return str(ULID.from_int(_last))


def least_id(at_ms: int) -> str:
    """What sorts before every id that was made at this time or later."""
    return str(ULID.from_int(at_ms << _RANDOM_BITS))
