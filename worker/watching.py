"""Keeps projects true to their files while nobody asks: looks every second, tells live sessions.

Stats instead of notifications: the folder may not exist yet, may lie on a network disk, and two
stats a second and project cost less than a watch that must be set up again and again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import structlog

from agent.errors import UnknownModel
from agent.routes import resolve
from domain.errors import DslInvalid
from settings.config import Config
from storage import project_file, projects
from storage.opening import OpenStore
from storage.project_file import LoadedFile
from storage.project_yaml import invalid
from storage.tables import Project

log = structlog.get_logger()
EVERY_S = 1.0
Stamp = tuple[tuple[int, int, int] | None, ...]


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
        self._config = config
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
        try:
            loaded = await asyncio.to_thread(self._read, Path(project.path))
        except DslInvalid as error:
            if project.state == "ready":
                log.info("project.invalid", project=project.id, reason=error.message)
                await self._mark(project, error)
            return
        if loaded.hash != project.dsl_hash or project.state != "ready":
            log.info("project.changed", project=project.id, dsl_hash=loaded.hash)
            limit = self._config().limits.running_sessions_per_project
            await self._store.awrite(
                lambda db: projects.load(db, project.created_by, loaded, default_limit=limit)
            )

    async def _mark(self, project: Project, error: DslInvalid) -> None:
        await self._store.awrite(
            lambda db: projects.mark_invalid(db, project.created_by, project.id, error)
        )

    def _read(self, folder: Path) -> LoadedFile:
        if not folder.is_dir():
            raise invalid(project_file.FILE, "the project's folder is gone")
        loaded = project_file.load(folder)
        for path, model in loaded.models:
            try:
                resolve(self._config(), model)
            except UnknownModel as error:
                line, column = loaded.places.get(path, (1, 1))
                raise invalid(
                    project_file.FILE, error.message, line=line, column=column, path=path
                ) from None
        return loaded
