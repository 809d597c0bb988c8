"""Files a terminal the moment it ends, as the host tells; upkeep finds what this missed."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial

import structlog

from activities.terminals import Terminals
from holdfast.storage.database.opening import OpenStore
from holdfast.storage.sessions import ptys
from holdfast.terminal.errors import TerminalError

log = structlog.get_logger()
RETRY_S = 0.5
# Whoever opens a terminal stores its row after the program has begun, and some end at once.
ROW_WAITS_S = (0.0, 0.5, 2.0)


async def file_forever(
    store: OpenStore, terminals: Terminals, look: Callable[[], Awaitable[None]]
) -> None:
    """Listen for as long as the worker lives; with each new host look at every terminal once."""
    while True:
        try:
            async with await terminals.listener() as client:
                async for happened in client.events(when_listening=look):
                    if happened.kind == "exited" and happened.info.terminal:
                        await file(store, terminals, happened.info.key)
        except TerminalError as error:
            log.info("endings.host_away", error=str(error))
        await asyncio.sleep(RETRY_S)


async def file(store: OpenStore, terminals: Terminals, pty_id: str) -> bool:
    """Keep what the terminal showed; False when nobody knows it, or it was kept before."""
    for wait_s in ROW_WAITS_S:
        await asyncio.sleep(wait_s)
        if await store.aread(partial(ptys.find, pty_id=pty_id)) is not None:
            return await terminals.store_closed(pty_id)
    return False
