"""The tool memory_search: an agent looks into the memory of its project."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import structlog

from activities.tools.requests import ToolRequest
from holdfast.agent.tools.outcome import ToolOutcome
from holdfast.agent.tools.specs import MemorySearchArguments
from holdfast.domain.errors import Refusal
from holdfast.memory.pool import MemoryPool
from holdfast.storage.database.opening import OpenStore
from holdfast.storage.database.tables import Project
from holdfast.storage.projects import projects

log = structlog.get_logger()
SHOWN = ("path", "start_line", "end_line", "score", "snippet")
SCORE_DIGITS = 4
# Has the index brought up to date, for at most a few seconds; whether it is now.
Sync = Callable[[str], Awaitable[bool]]


class MemoryTool:
    """Search over what the project's agents should remember."""

    def __init__(self, store: OpenStore, pool: MemoryPool, sync: Sync) -> None:
        self.store = store
        self.pool = pool
        self._sync = sync

    async def run(self, request: ToolRequest, arguments: MemorySearchArguments) -> ToolOutcome:
        """The best hits. Safe to repeat: it only looks."""
        session = request.session
        try:
            project = await self.store.aread(
                lambda db: projects.get(db, session.created_by, session.project_id)
            )
            if await asyncio.to_thread(self._should_sync, project):
                await self._brought_up_to_date(project.id)
            return await asyncio.to_thread(self._search, project, arguments)
        except Refusal as refusal:
            return ToolOutcome({"error": refusal.message}, is_error=True)

    def _should_sync(self, project: Project) -> bool:
        with self.pool.open(project) as memory:
            return memory.settings.sync.on_search and memory.is_dirty(patient=True)

    async def _brought_up_to_date(self, project_id: str) -> None:
        try:
            await self._sync(project_id)
        except Exception as error:  # noqa: BLE001 - an old answer is better than none
            log.warning("memory.not_synced", project=project_id, error=str(error)[:500])

    def _search(self, project: Project, arguments: MemorySearchArguments) -> ToolOutcome:
        with self.pool.open(project) as memory:
            hits = memory.search(arguments.query, limit=arguments.limit, min_score=None)
        shown = [
            {key: value for key, value in hit.model_dump().items() if key in SHOWN}
            | {"score": round(hit.score, SCORE_DIGITS)}
            for hit in hits
        ]
        return ToolOutcome({"hits": shown, "count": len(shown)})
