"""Memories for the API: it reads their indexes itself, and asks the workflow to write them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, TypeVar

from holdfast.domain.errors import Refusal, Unavailable
from holdfast.domain.ids import new_id
from holdfast.domain.memory import SyncReport
from holdfast.memory.pool import MemoryPool
from holdfast.storage.database.tables import Project
from holdfast.temporal.memories import MemoryWorkflows

# A search waits this long for what is not indexed yet, then answers with what there is.
SEARCH_WAIT_S = 3.0
SYNC_WAIT_S = 25.0
THREADS = 4
T = TypeVar("T")
AWAY = "Temporal does not answer just now; the same request may be repeated"


@dataclass(frozen=True)
class Found:
    """What a search answers."""

    items: list[dict[str, Any]]
    synced: bool  # whether the index was brought up to date for this search
    stale: bool  # whether something is not indexed yet
    warnings: list[str]


class Memories:
    """What the routes ask. Everything that reads an index runs in a thread."""

    def __init__(self, pool: MemoryPool, workflows: MemoryWorkflows) -> None:
        self.pool = pool
        # Threads of its own: an embedder that hangs must not keep other requests from theirs.
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="memory")
        self._workflows = workflows

    async def search(
        self, project: Project, query: str, *, limit: int | None, min_score: float | None
    ) -> Found:
        """The best hits, after a sync where the index is behind and the project wants that."""
        dirty, wanted = await self._off_the_loop(self._look, project)
        synced = dirty and wanted and await self._brought_up_to_date(project)
        hits, warnings = await self._off_the_loop(self._find, project, query, limit, min_score)
        return Found(hits, synced, dirty and not synced, warnings)

    async def sync(self, project: Project, command_id: str, *, force: bool) -> SyncReport | None:
        """Have a round made; its report, or None when it is certain that it goes on without us."""
        await self._off_the_loop(self._check, project)
        report = await self._workflows.sync(
            project.id, command_id=command_id, force=force, wait_s=SYNC_WAIT_S
        )
        if report is None and (await self._progress(project.id))["state"] != "running":
            raise Unavailable(AWAY)
        return report

    async def status(self, project: Project) -> dict[str, Any]:
        """What the index holds, and whether a sync goes on."""
        shown = await self._off_the_loop(self._status, project)
        return {**shown, "sync": await self._progress(project.id)}

    def close(self) -> None:
        """Give back the open files."""
        self._threads.shutdown(wait=False, cancel_futures=True)
        self.pool.close()

    async def _off_the_loop(self, work: Callable[..., T], *arguments: Any) -> T:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._threads, work, *arguments)

    def _check(self, project: Project) -> None:
        with self.pool.open(project):
            return

    def _look(self, project: Project) -> tuple[bool, bool]:
        with self.pool.open(project) as memory:
            return memory.is_dirty(patient=True), memory.settings.sync.on_search

    def _find(
        self, project: Project, query: str, limit: int | None, min_score: float | None
    ) -> tuple[list[dict[str, Any]], list[str]]:
        with self.pool.open(project) as memory:
            hits = memory.search(query, limit=limit, min_score=min_score)
            return [hit.model_dump() for hit in hits], memory.warnings()

    def _status(self, project: Project) -> dict[str, Any]:
        with self.pool.open(project) as memory:
            return {**memory.status().model_dump(), "warnings": memory.warnings()}

    async def _brought_up_to_date(self, project: Project) -> bool:
        try:
            report = await self._workflows.sync(
                project.id, command_id=new_id(), force=False, wait_s=SEARCH_WAIT_S
            )
        except Refusal:
            return False  # what is there can be searched without Temporal and without a worker
        return report is not None

    async def _progress(self, project_id: str) -> dict[str, Any]:
        try:
            found = await self._workflows.progress(project_id)
        except Unavailable:
            return {"state": "unknown", "done": None, "total": None}
        state = "running" if found.running else "idle"
        return {"state": state, "done": found.done, "total": found.total}
