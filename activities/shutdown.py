"""Steps that a stopping worker lets finish: each is one short transaction."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


async def finish_despite_shutdown(work: Coroutine[Any, Any, T]) -> T:
    """Run to the end although the worker stops meanwhile.

    Its thread would finish the transaction anyway. A step that reports itself broken off is tried
    again by the stopping worker, with growing waits, and the stop takes that much longer.
    """
    task = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        if task.cancelled():
            raise
        return await task
