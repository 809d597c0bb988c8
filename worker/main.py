"""The worker process: connects, binds steps to activities, and runs until SIGTERM."""

from __future__ import annotations

import asyncio
import signal
import threading
from datetime import timedelta

import structlog
from temporalio.client import Client
from temporalio.common import VersioningBehavior, WorkerDeploymentVersion
from temporalio.worker import (
    PollerBehavior,
    PollerBehaviorAutoscaling,
    PollerBehaviorSimpleMaximum,
    UnsandboxedWorkflowRunner,
    Worker,
    WorkerDeploymentConfig,
)

from holdfast.agent.providers import close_clients, warm_up
from holdfast.settings.config import Config
from holdfast.settings.environment import POLLERS_AT_REST, Settings
from holdfast.settings.fresh_config import FreshConfig
from holdfast.storage.database.opening import OpenStore, open_store
from holdfast.storage.database.patience import open_until
from holdfast.storage.database.postgres import PostgresOptions
from holdfast.temporal.connection import connect_patiently
from holdfast.temporal.search_attributes import ensure_search_attributes
from worker import background
from worker.health import WorkerHealth
from worker.hosting import Hosting
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
    store = await open_until(
        stopped,
        lambda: open_store(
            settings.database_url,
            settings.home,
            blobs_url=settings.blobs_url,
            synchronous=config().server.synchronous,
            postgres=PostgresOptions.of(settings),
        ),
    )
    if store is None:
        return
    for warning in store.warnings():
        log.warning("store.warning", words=warning)
    async with WorkerHealth(settings.metrics_bind) as health:
        client = await connect_patiently(
            settings, stopped, metrics_address=health.temporal_metrics_address
        )
        if client is None:
            store.close()
            return
        parts = build(store, settings, config)
        await ensure_search_attributes(client)
        await serve(client, settings, store, parts, stopped, health)


async def serve(
    client: Client,
    settings: Settings,
    store: OpenStore,
    parts: Parts,
    stopped: asyncio.Event,
    health: WorkerHealth,
) -> None:
    """Run the worker and what goes on beside it.

    Told to stop, it first lets go of its host's steps: what runs there goes on in the terminal
    host, and the next worker attaches to it.
    """
    grace = timedelta(seconds=settings.drain_s)
    worker = make_worker(
        client,
        settings.task_queue,
        parts,
        grace=grace,
        build_id=settings.build_id,
        pollers_max=settings.pollers_max,
    )
    hosting = Hosting(client, settings, store, parts)
    others = background.start(client, settings, store, parts, hosting)
    try:
        async with worker:
            log.info("worker.ready", task_queue=settings.task_queue, build_id=settings.build_id)
            health.serve(lambda: worker.is_running)
            await stopped.wait()
            health.serve(None)
            others.pop(background.HOSTING).cancel()
            leaving = asyncio.create_task(hosting.stop())
        await leaving
    finally:
        for task in others.values():
            task.cancel()
        await asyncio.gather(*others.values(), return_exceptions=True)
        await parts.terminals.close()
        await close_clients()
        for pool in parts.pools:
            pool.close()
        store.close()


def make_worker(
    client: Client,
    task_queue: str,
    parts: Parts,
    *,
    grace: timedelta = GRACE,
    build_id: str = "",
    pollers_max: int = 0,
) -> Worker:
    """A worker whose death is noticed within seconds and whose cancels arrive at once.

    With a build id its sessions stay with that build until they begin a new history.
    """
    polling = pollers(pollers_max)
    return Worker(
        client,
        task_queue=task_queue,
        workflows=WORKFLOWS,
        activities=parts.activities,
        workflow_runner=UnsandboxedWorkflowRunner(),
        max_cached_workflows=2000,
        max_concurrent_activities=300,
        workflow_task_poller_behavior=polling,
        activity_task_poller_behavior=polling,
        sticky_queue_schedule_to_start_timeout=timedelta(seconds=1),
        graceful_shutdown_timeout=grace,
        max_heartbeat_throttle_interval=timedelta(milliseconds=500),
        default_heartbeat_throttle_interval=timedelta(milliseconds=500),
        deployment_config=deployment(task_queue, build_id) if build_id else None,
    )


def pollers(maximum: int) -> PollerBehavior:
    """How many polls are open at once: always the same, or more while there is more to do."""
    if not maximum:
        return PollerBehaviorSimpleMaximum(POLLERS_AT_REST)
    return PollerBehaviorAutoscaling(minimum=2, initial=POLLERS_AT_REST, maximum=maximum)


def deployment(name: str, build_id: str) -> WorkerDeploymentConfig:
    """The build as Temporal's worker deployments know it; the task queue names the deployment.

    The behaviour is said here and not by the workflows: those of an unversioned worker would be
    refused.
    """
    return WorkerDeploymentConfig(
        version=WorkerDeploymentVersion(deployment_name=name, build_id=build_id),
        use_worker_versioning=True,
        default_versioning_behavior=VersioningBehavior.PINNED,
    )


def _warm_up(config: Config) -> None:
    """Import the providers' libraries while nobody waits; the demo needs none of them."""
    warm_up(provider.driver for provider in config.providers.values())
