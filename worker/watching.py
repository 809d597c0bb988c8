"""Keeps projects true to their files while nobody asks: looks every second, tells live sessions.

Stats instead of notifications: the folder may not exist yet, may lie on a network disk, and two
stats a second and project cost less than a watch that must be set up again and again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import structlog

from holdfast.agent.routes import resolve
from holdfast.settings.config import Config
from holdfast.storage.database.opening import OpenStore
from holdfast.storage.database.tables import Project
from holdfast.storage.projects import project_file, projects
from holdfast.storage.projects.project_file import Stamp
from holdfast.storage.projects.project_refresh import ProjectRefresh

log = structlog.get_logger()
EVERY_S = 1.0


async def watch_forever(
    store: OpenStore, config: Callable[[], Config], *, every_s: float = EVERY_S
) -> None:
    """Look at every project's files again and again."""
    watch = ProjectFilesWatch(store, config)
    while True:
        await watch.look()
        await asyncio.sleep(every_s)


class ProjectFilesWatch:
    """Takes over a file when it changed and then stayed the same for one look."""

    def __init__(self, store: OpenStore, config: Callable[[], Config]) -> None:
        self._store = store
        self._files = ProjectRefresh(
            store,
            lambda model: resolve(config(), model),
            lambda: config().project_defaults,
        )
        self._taken: dict[str, Stamp] = {}
        self._seen: dict[str, Stamp] = {}

    async def look(self) -> None:
        """Look once at every project."""
        known = await self._store.aread(projects.everywhere)
        stamps = await asyncio.to_thread(
            lambda: {one.id: project_file.stamp(Path(one.path)) for one in known}
        )
        for project in known:
            stamp = stamps[project.id]
            settled = self._seen.get(project.id, stamp) == stamp
            if settled and self._taken.get(project.id) != stamp:
                await self._take(project)
                self._taken[project.id] = stamp
        self._seen = stamps
        self._taken = {key: stamp for key, stamp in self._taken.items() if key in stamps}

    async def _take(self, project: Project) -> None:
        taken = await self._files.take(project)
        if taken.state != project.state or taken.dsl_hash != project.dsl_hash:
            log.info("project.changed", project=project.id, state=taken.state, hash=taken.dsl_hash)
