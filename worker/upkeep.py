"""Upkeep: old frames go, staged messages nobody took go, terminals that ended are filed."""

from __future__ import annotations

import asyncio
from functools import partial

import structlog

from activities.terminals import Terminals
from storage import frames, inbox, ptys
from storage.engine import Db
from storage.opening import OpenStore
from terminal.errors import TerminalError, UnknownProcess

log = structlog.get_logger()
EVERY_S = 15.0


async def keep(store: OpenStore, terminals: Terminals) -> None:
    """Look after the store for as long as the worker lives."""
    while True:
        await asyncio.sleep(EVERY_S)
        await prune(store)
        await file_closed_terminals(store, terminals)


async def prune(store: OpenStore) -> None:
    """Drop what is past its time."""
    for session_id in await store.aread(frames.sessions_to_prune):
        await store.awrite(partial(frames.prune, session_id=session_id))
    await store.awrite(inbox.sweep)


async def file_closed_terminals(store: OpenStore, terminals: Terminals) -> None:
    """Keep the transcripts of terminals that ended with nobody watching."""
    for pty in await store.aread(ptys.live):
        client = await terminals.client()
        try:
            info = await client.info(pty.id)
        except UnknownProcess:
            await store.awrite(partial(_lost, pty_id=pty.id))
            continue
        if info.exit is not None:
            try:
                await terminals.store_closed(pty.id)
            except TerminalError as error:
                log.warning("upkeep.terminal", pty_id=pty.id, error=str(error))


def _lost(db: Db, pty_id: str) -> bool:
    return ptys.closed(
        db, pty_id, reason="lost", exit_code=None, transcript=None, text="", line_count=0
    )
