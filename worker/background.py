"""What goes on beside the steps: the index, upkeep, sessions that lost their workflow."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import structlog
from temporalio.client import Client

from holdfast.settings.environment import Settings
from holdfast.storage.database.opening import OpenStore
from holdfast.storage.search.indexer import keep_indexed
from holdfast.storage.upkeep.orphans import collect_forever
from holdfast.temporal.connection import Connection
from holdfast.temporal.memories import MemoryWorkflows
from holdfast.temporal.sessions import SessionWorkflows
from worker import (
    memories,
    purged_workflows,
    queue,
    recovery,
    retention,
    snapshots,
    upkeep,
    watching,
)
from worker.parts import Parts

log = structlog.get_logger()
PAUSE_AFTER_TROUBLE_S = 5.0


def start(
    client: Client, settings: Settings, store: OpenStore, parts: Parts
) -> list[asyncio.Task[None]]:
    """Start every loop; each goes on after trouble of its own."""
    connection = Connection(settings, client)
    sessions, memory_workflows = SessionWorkflows(connection), MemoryWorkflows(connection)
    loops: dict[str, Callable[[], Awaitable[None]]] = {
        "indexing": lambda: keep_indexed(store),
        "queue": lambda: queue.start_forever(sessions, store),
        "purged_workflows": lambda: purged_workflows.end_forever(client, store),
        "orphans": lambda: collect_forever(store),
        "snapshots": lambda: snapshots.sweep_forever(store, parts.trees),
        "watching": lambda: watching.watch_forever(store, parts.config),
        "memories": lambda: memories.watch_forever(memory_workflows, store, parts.pools[0]),
        "upkeep": lambda: upkeep.keep(store, parts.terminals, parts.config),
        "retention": lambda: retention.keep_forever(store, parts.config),
        "recovery": lambda: recovery.watch_forever(sessions, store),
    }
    return [asyncio.create_task(_insist(name, loop)) for name, loop in loops.items()]


async def _insist(name: str, loop: Callable[[], Awaitable[None]]) -> None:
    while True:
        try:
            await loop()
            return
        except Exception as error:  # noqa: BLE001 - one loop's trouble must not end the worker
            log.warning("worker.loop_failed", loop=name, error=str(error)[:500])
        await asyncio.sleep(PAUSE_AFTER_TROUBLE_S)
