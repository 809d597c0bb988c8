"""Upkeep: old frames go, staged messages nobody took go, terminals that ended are filed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial

import structlog

from activities.terminals import Terminals
from settings.config import Config, Retention
from storage import frames, inbox, ptys
from storage.engine import Db
from storage.opening import OpenStore
from terminal.errors import TerminalError, UnknownProcess

log = structlog.get_logger()
EVERY_S = 15.0


async def keep(store: OpenStore, terminals: Terminals, config: Callable[[], Config]) -> None:
    """Look after the store for as long as the worker lives."""
    while True:
        await asyncio.sleep(EVERY_S)
        await prune(store, config().retention)
        await file_closed_terminals(store, terminals)


async def prune(store: OpenStore, retention: Retention) -> None:
    """Drop what is past its time."""
    keep_ms = retention.frames_minutes * 60_000
    keep_bytes = retention.frames_mib * 1024 * 1024
    for session_id in await store.aread(partial(frames.sessions_to_prune, keep_ms=keep_ms)):
        drop = partial(frames.prune, session_id=session_id, keep_ms=keep_ms, keep_bytes=keep_bytes)
        await store.awrite(drop)
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
