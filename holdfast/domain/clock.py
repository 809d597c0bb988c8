"""The one clock: whole milliseconds since the epoch."""

from __future__ import annotations

import time


def now_ms() -> int:
    """The time now, in milliseconds since the epoch."""
    return time.time_ns() // 1_000_000
