"""What goes on beside the steps: the index, upkeep, sessions that lost their workflow."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import structlog
from temporalio.client import Client

from holdfast.settings.environment import Settings
from holdfast.storage.database.opening import OpenStore
from holdfast.storage.search.indexer import keep_indexed
from holdfast.storage.upkeep.leadership import EVERY_S, Leadership, leadership
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
from worker.hosting import Hosting
from worker.parts import Parts

log = structlog.get_logger()
PAUSE_AFTER_TROUBLE_S = 5.0
HOSTING = "hosting"
Loops = dict[str, Callable[[], Awaitable[None]]]
Tasks = dict[str, asyncio.Task[None]]


def start(
    client: Client, settings: Settings, store: OpenStore, parts: Parts, hosting: Hosting
) -> Tasks:
    """Start every loop; each goes on after trouble of its own."""
    connection = Connection(settings, client)
    sessions, memory_workflows = SessionWorkflows(connection), MemoryWorkflows(connection)
    # What each machine does for itself.
    own: Loops = {
        HOSTING: hosting.keep_forever,
        "snapshots": lambda: snapshots.sweep_forever(store, parts.trees),
        "terminals": lambda: upkeep.keep_terminals(store, parts.terminals),
        "memories": lambda: memories.watch_forever(
            memory_workflows, store, parts.pools[0], lambda: parts.terminals.host_id
        ),
    }
    # What one worker does for all.
    shared: Loops = {
        "indexing": lambda: keep_indexed(store),
        "queue": lambda: queue.start_forever(sessions, store),
        "purged_workflows": lambda: purged_workflows.end_forever(client, store),
        "orphans": lambda: collect_forever(store),
        "bundles": lambda: snapshots.sweep_bundles_forever(store),
        "watching": lambda: watching.watch_forever(store, parts.config),
        "upkeep": lambda: upkeep.prune_forever(store, parts.config),
        "retention": lambda: retention.keep_forever(store, parts.config),
        "recovery": lambda: recovery.watch_forever(sessions, store),
    }
    leading = asyncio.create_task(lead(leadership(store), shared))
    return {"leading": leading, **_started(own)}


async def lead(candidate: Leadership, loops: Loops, *, every_s: float = EVERY_S) -> None:
    """Run the loops while this worker leads, until cancelled; then let another lead at once."""
    running: Tasks = {}
    try:
        while True:
            leads = await _stands(candidate)
            if leads and not running:
                log.info("worker.leads")
                running = _started(loops)
            elif running and not leads:
                log.warning("worker.leads_no_more")
                await _stop(running)
                running = {}
            await asyncio.sleep(every_s)
    finally:
        await _stop(running)
        await candidate.resign()


async def _stands(candidate: Leadership) -> bool:
    try:
        return await candidate.stand()
    except Exception as error:  # noqa: BLE001 - whatever it is, another worker may lead
        log.warning("worker.not_standing", error=str(error)[:500])
        return False


def _started(loops: Loops) -> Tasks:
    return {name: asyncio.create_task(_insist(name, loop)) for name, loop in loops.items()}


async def _stop(running: Tasks) -> None:
    for task in running.values():
        task.cancel()
    await asyncio.gather(*running.values(), return_exceptions=True)


async def _insist(name: str, loop: Callable[[], Awaitable[None]]) -> None:
    while True:
        try:
            await loop()
            return
        except Exception as error:  # noqa: BLE001 - one loop's trouble must not end the worker
            log.warning("worker.loop_failed", loop=name, error=str(error)[:500])
        await asyncio.sleep(PAUSE_AFTER_TROUBLE_S)
