"""Takes a project's file as it is now: applied when it is good, and marked when it is broken."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from pathlib import Path

from holdfast.domain.errors import DslInvalid, ValidationFailed
from holdfast.domain.trust import ProjectDefaults
from holdfast.storage.database.opening import OpenStore
from holdfast.storage.database.tables import Project
from holdfast.storage.hosts import hosts
from holdfast.storage.projects import project_file, projects
from holdfast.storage.projects.project_file import LoadedFile
from holdfast.storage.projects.project_yaml import invalid

# Refuses, by ValidationFailed, a model that cannot be used; who can say so differs by process.
CheckModel = Callable[[str], object]


class ProjectRefresh:
    """Reads files for whoever looks: the API when asked, the worker while nobody asks."""

    def __init__(
        self, store: OpenStore, check_model: CheckModel, defaults: Callable[[], ProjectDefaults]
    ) -> None:
        self._store = store
        self._check_model = check_model
        self._defaults = defaults

    async def read(self, folder: Path) -> LoadedFile:
        """The folder's file, whose models can all be used, or DslInvalid with the place."""
        return await asyncio.to_thread(self._read, folder)

    async def take(self, project: Project) -> Project:
        """The project as its file has it now; where its folder is elsewhere, as it was."""
        here = await asyncio.to_thread(os.path.isdir, project.path)
        if not here and await self._store.aread(hosts.are_several):
            return project
        try:
            loaded = await self.read(Path(project.path))
        except DslInvalid as error:
            return await self.mark(project, error) if project.state == "ready" else project
        # Without `file_hash` the project came by an import, and nobody has compared its file yet.
        if loaded.hash == project.dsl_hash and project.state == "ready" and project.file_hash:
            return project
        applied, _ = await self.load(project.created_by, loaded)
        return applied

    async def load(
        self, operator_id: str, loaded: LoadedFile, *, trust: bool = False
    ) -> tuple[Project, bool]:
        """The project of this file and whether it is new; `trust` puts all of it in force."""
        defaults = self._defaults()
        return await self._store.awrite(
            lambda db: projects.load(db, operator_id, loaded, defaults=defaults, trust=trust)
        )

    async def mark(self, project: Project, error: DslInvalid) -> Project:
        """Remember what is wrong with the file."""
        return await self._store.awrite(
            lambda db: projects.mark_invalid(db, project.created_by, project.id, error)
        )

    def _read(self, folder: Path) -> LoadedFile:
        if not folder.is_dir():
            raise invalid(project_file.FILE, "the project's folder is gone")
        loaded = project_file.load(folder)
        for path, model in loaded.models:
            try:
                self._check_model(model)
            except ValidationFailed as error:
                line, column = loaded.places.get(path, (1, 1))
                raise invalid(
                    project_file.FILE, error.message, line=line, column=column, path=path
                ) from None
        return loaded
