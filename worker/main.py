"""The worker process: connects, binds steps to activities, and runs until SIGTERM."""

from __future__ import annotations

import asyncio
import signal
import threading
from datetime import timedelta

import structlog
from temporalio.client import Client
from temporalio.worker import UnsandboxedWorkflowRunner, Worker

from holdfast.agent.providers import close_clients, warm_up
from holdfast.settings.config import Config
from holdfast.settings.environment import Settings
from holdfast.settings.fresh_config import FreshConfig
from holdfast.storage.database.opening import OpenStore, open_store
from holdfast.temporal.connection import connect_patiently
from holdfast.temporal.search_attributes import ensure_search_attributes
from worker import background
from worker.parts import WORKFLOWS, Parts, build

log = structlog.get_logger()
GRACE = timedelta(seconds=5)


async def run(settings: Settings) -> None:
    """Serve the task queue until SIGTERM or SIGINT; steps under way get five seconds."""
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopped.set)
    config = FreshConfig(settings.home)
    threading.Thread(target=_warm_up, args=(config(),), daemon=True).start()
    store = await asyncio.to_thread(
        open_store,
        settings.database_url,
        settings.home,
        blobs_url=settings.blobs_url,
        synchronous=config().server.synchronous,
    )
    for warning in store.warnings():
        log.warning("store.warning", words=warning)
    client = await connect_patiently(settings, stopped)
    if client is None:
        store.close()
        return
    parts = build(store, settings, config)
    await ensure_search_attributes(client)
    await serve(client, settings, store, parts, stopped)


async def serve(
    client: Client, settings: Settings, store: OpenStore, parts: Parts, stopped: asyncio.Event
) -> None:
    """Run the worker and what goes on beside it."""
    worker = make_worker(client, settings.task_queue, parts)
    others = background.start(client, settings, store, parts)
    try:
        async with worker:
            log.info("worker.ready", task_queue=settings.task_queue)
            await stopped.wait()
    finally:
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)
        await parts.terminals.close()
        await close_clients()
        for pool in parts.pools:
            pool.close()
        store.close()


def make_worker(
    client: Client, task_queue: str, parts: Parts, *, grace: timedelta = GRACE
) -> Worker:
    """A worker whose death is noticed within seconds and whose cancels arrive at once."""
    return Worker(
        client,
        task_queue=task_queue,
        workflows=WORKFLOWS,
        activities=parts.activities,
        workflow_runner=UnsandboxedWorkflowRunner(),
        max_cached_workflows=2000,
        max_concurrent_activities=300,
        sticky_queue_schedule_to_start_timeout=timedelta(seconds=1),
        graceful_shutdown_timeout=grace,
        max_heartbeat_throttle_interval=timedelta(milliseconds=500),
        default_heartbeat_throttle_interval=timedelta(milliseconds=500),
    )


def _warm_up(config: Config) -> None:
    """Import the providers' libraries while nobody waits; the demo needs none of them."""
    warm_up(provider.driver for provider in config.providers.values())
