"""Heartbeats beside a long effect, so that its worker's death is noticed and a cancel arrives."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from temporalio import activity

EVERY_S = 0.5


@asynccontextmanager
async def beating() -> AsyncIterator[None]:
    """Heartbeat as long as the block runs."""
    task = asyncio.create_task(_beat())
    try:
        yield
    finally:
        task.cancel()


async def _beat() -> None:
    while True:
        await asyncio.sleep(EVERY_S)
        activity.heartbeat()
