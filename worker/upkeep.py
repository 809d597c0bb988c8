"""Upkeep: old frames go, staged messages nobody took go, terminals that ended are filed."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial

import structlog

from activities.terminals import Terminals
from holdfast.domain.events import Event, PtyIdle
from holdfast.domain.transcript import LOST
from holdfast.settings.config import Config, Retention
from holdfast.storage.database.engine import Db
from holdfast.storage.database.opening import OpenStore
from holdfast.storage.database.tables_history import Pty
from holdfast.storage.hosts import executions
from holdfast.storage.log import events, frames
from holdfast.storage.projects import failed_logins, idempotency
from holdfast.storage.sessions import inbox, ptys
from holdfast.terminal.errors import TerminalError, UnknownProcess
from worker import endings

log = structlog.get_logger()
EVERY_S = 15.0
# As the terminal host counts it (K-054).
IDLE_S = 30 * 60


async def prune_forever(store: OpenStore, config: Callable[[], Config]) -> None:
    """Drop what is past its time, for all workers."""
    while True:
        await asyncio.sleep(EVERY_S)
        await prune(store, config().retention)


async def keep_terminals(store: OpenStore, terminals: Terminals) -> None:
    """Look after the terminals of this worker's host for as long as it lives."""
    look = partial(look_at_terminals, store, terminals, set())
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(_now_and_then(look))
        tasks.create_task(endings.file_forever(store, terminals, look))


async def _now_and_then(look: Callable[[], Awaitable[None]]) -> None:
    while True:
        await asyncio.sleep(EVERY_S)
        await look()


async def prune(store: OpenStore, retention: Retention) -> None:
    """Drop what is past its time."""
    keep_ms = retention.frames_minutes * 60_000
    keep_bytes = retention.frames_mib * 1024 * 1024
    due = partial(frames.sessions_to_prune, keep_ms=keep_ms, keep_bytes=keep_bytes)
    for session_id in await store.aread(due):
        drop = partial(frames.prune, session_id=session_id, keep_ms=keep_ms, keep_bytes=keep_bytes)
        await store.awrite(drop)
    await store.awrite(inbox.sweep)
    await store.awrite(_sweep)


def _sweep(db: Db) -> None:
    idempotency.sweep(db)
    executions.sweep(db)
    failed_logins.sweep(db)


async def look_at_terminals(store: OpenStore, terminals: Terminals, idle: set[str]) -> None:
    """Keep the transcripts of terminals that ended with nobody watching; tell of idle ones once.

    Only those of the host beside this worker: of others it can say nothing.
    `idle` holds those that were told of; one that is used again may be told of again.
    """
    try:
        host_id = (await terminals.identity()).id
    except TerminalError as error:
        log.warning("upkeep.host_away", error=str(error))
        return
    for pty in await store.aread(partial(ptys.live, host_id=host_id)):
        try:
            await _look_at(store, terminals, pty, idle)
        except UnknownProcess:
            await ptys.close_with_transcript(store, pty.id, LOST)
        except TerminalError as error:
            # A host that is away or being started again: the next look finds it.
            log.warning("upkeep.terminal", pty_id=pty.id, error=str(error))


async def _look_at(store: OpenStore, terminals: Terminals, pty: Pty, idle: set[str]) -> None:
    info = await (await terminals.client()).info(pty.id)
    if info.exit is not None:
        await terminals.store_closed(pty.id)
    elif not info.idle:
        idle.discard(pty.id)
    elif pty.id not in idle:
        idle.add(pty.id)
        told = PtyIdle(pty_id=pty.id, idle_s=IDLE_S)
        await store.awrite(partial(_append, session_id=pty.session_id, event=told))


def _append(db: Db, session_id: str, event: Event) -> int:
    return events.append(db, session_id, event)
