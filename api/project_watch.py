"""Keeps projects true to their files: whoever shows one looks whether its file was written."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

from api.configuration import Configuration
from holdfast.domain.errors import Conflict, DslInvalid
from holdfast.storage.database.opening import OpenStore
from holdfast.storage.database.tables import Project
from holdfast.storage.projects import project_file, projects
from holdfast.storage.projects.project_file import Stamp
from holdfast.storage.projects.project_refresh import ProjectRefresh

STAMPS_MAX = 10_000


class ProjectWatch:
    """Loads project files, and loads them again after they changed."""

    def __init__(
        self, store: OpenStore, configuration: Configuration, hidden: Sequence[Path] = ()
    ) -> None:
        """`hidden`: where no project can be."""
        self._store = store
        self._hidden = hidden
        self._files = ProjectRefresh(
            store,
            configuration.check_alias_or_model,
            lambda: configuration.current.project_defaults,
        )
        self._stamps: dict[str, Stamp] = {}

    async def load(
        self, operator_id: str, path: str, *, trust: bool = False
    ) -> tuple[Project, bool]:
        """The project in this folder and whether it is new; a broken file marks an old one."""
        folder = await asyncio.to_thread(project_file.folder_of, path, self._hidden)
        known = await self._store.aread(lambda db: projects.by_path(db, operator_id, str(folder)))
        try:
            loaded = await self._files.read(folder)
        except DslInvalid as error:
            if known is not None:
                await self._files.mark(known, error)
            raise
        return await self._files.load(operator_id, loaded, trust=trust)

    async def trust(self, project: Project, dsl_hash: str) -> Project:
        """Put the whole file in force, if it is still the one that the operator has seen."""
        loaded = await self._files.read(Path(project.path))
        if loaded.hash != dsl_hash:
            raise Conflict(
                "the project file is another one by now: look at what it loosens, then trust that",
                {"dsl_hash": loaded.hash},
            )
        return (await self._files.load(project.created_by, loaded, trust=True))[0]

    async def refresh(self, project: Project) -> Project:
        """The project, after a look at its files."""
        stamp = await asyncio.to_thread(project_file.stamp, Path(project.path))
        if self._stamps.get(project.id) == stamp and project.state == "ready":
            return project
        project = await self._files.take(project)
        if project.state == "ready":
            if len(self._stamps) > STAMPS_MAX:
                self._stamps.clear()
            self._stamps[project.id] = stamp
        return project
