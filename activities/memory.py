"""Brings a project's memory to what its sources are now; the worker is its only writer."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor

import structlog
from temporalio import activity

from activities.heartbeats import EVERY_S
from activities.refusals import answering
from holdfast.domain.memory import SyncReport
from holdfast.domain.memory_steps import MemoryPlaced, MemoryPlaceStep, MemorySyncStep
from holdfast.memory.pool import MemoryPool
from holdfast.storage.database.engine import Db
from holdfast.storage.database.opening import OpenStore
from holdfast.storage.database.tables import Project
from holdfast.storage.hosts import hosts, memory_indexes
from holdfast.storage.projects import projects

log = structlog.get_logger()
SYNCS_AT_ONCE = 4
STOP_WAIT_S = 3.0
# So often an embedder whose trouble may pass is waited for; then another, or none, does its work.
PATIENCE = 4
# So many machines are asked in turn for one that sees the project's files.
ASKED_MAX = 20


class Stopped(Exception):
    """The sync was asked to stop: cancelled, or its worker is going away."""


class MemoryActivities:
    """The steps of `MemorySyncWorkflow`."""

    def __init__(self, store: OpenStore, pool: MemoryPool) -> None:
        self.store = store
        self.pool = pool
        # Threads of its own: an embedder that hangs must not keep tools from theirs.
        self._threads = ThreadPoolExecutor(SYNCS_AT_ONCE, thread_name_prefix="memory-sync")

    @activity.defn(name="sync_memory")
    @answering
    async def sync_memory(self, step: MemorySyncStep) -> SyncReport:
        """One round. Safe to repeat: embeddings that were made are in the cache, the rest is new.

        An index that is built anew takes the old one's place only when it is whole.
        """
        project = await self.store.aread(lambda db: projects.by_id(db, step.project_id))
        progress = Progress(activity.info().attempt)
        async with _telling(progress):
            loop = asyncio.get_running_loop()
            work = loop.run_in_executor(self._threads, self._sync, progress, project, step)
            report = await _stoppable(work, progress)
        log.info("memory.synced", project=step.project_id, **report.model_dump(exclude_none=True))
        return report

    @activity.defn(name="place_memory")
    @answering
    async def place_memory(self, step: MemoryPlaceStep) -> MemoryPlaced:
        """The machines that are there; whoever built the index last has most of it already."""
        return await self.store.aread(lambda db: self._placed(db, step.project_id))

    def _placed(self, db: Db, project_id: str) -> MemoryPlaced:
        if self.store.is_sqlite:
            return MemoryPlaced()
        newest = memory_indexes.find(db, project_id)
        builder = None if newest is None else newest.host_id
        there = [host for host in hosts.everywhere(db) if hosts.state_of(host) != "away"]
        there.sort(key=lambda host: (host.id != builder, host.id))
        return MemoryPlaced(queues=[host.task_queue for host in there[:ASKED_MAX]])

    def _sync(self, progress: Progress, project: Project, step: MemorySyncStep) -> SyncReport:
        with self.pool.open(project) as memory:
            report = memory.sync(
                force=step.force, progress=progress.tell, patient=progress.attempt < PATIENCE
            )
        self.pool.share(project)
        return report


class Progress:
    """How far a sync is; told from its thread, and the way to stop it."""

    def __init__(self, attempt: int) -> None:
        self.attempt = attempt
        self.done = 0
        self.total = 0
        self.stop = threading.Event()

    def tell(self, done: int, total: int) -> None:
        """Take note; raises when the sync shall stop."""
        self.done, self.total = done, total
        if self.stop.is_set():
            raise Stopped


async def _stoppable(work: asyncio.Future[SyncReport], progress: Progress) -> SyncReport:
    """The work's end. Cancelled, it stops at its next piece; we wait for that a moment.

    One that hangs is left behind: it holds the writer's lock, so nobody writes beside it.
    """
    work.add_done_callback(lambda done: done.cancelled() or done.exception())
    try:
        return await asyncio.shield(work)
    except asyncio.CancelledError:
        progress.stop.set()
        await asyncio.wait({work}, timeout=STOP_WAIT_S)
        raise


@contextlib.asynccontextmanager
async def _telling(progress: Progress) -> AsyncIterator[None]:
    task = asyncio.create_task(_tell(progress))
    try:
        yield
    finally:
        task.cancel()


async def _tell(progress: Progress) -> None:
    while True:
        activity.heartbeat(progress.done, progress.total)
        await asyncio.sleep(EVERY_S)
