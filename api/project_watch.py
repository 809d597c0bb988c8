"""Keeps projects true to their files: whoever shows one looks whether its file was written."""

from __future__ import annotations

import asyncio
from pathlib import Path

from api.configuration import Configuration
from domain.errors import DslInvalid, ValidationFailed
from storage import project_file, projects
from storage.opening import OpenStore
from storage.project_file import LoadedFile
from storage.project_yaml import invalid
from storage.tables import Project

STAMPS_MAX = 10_000
_Stamp = tuple[tuple[int, int, int] | None, ...]


class ProjectWatch:
    """Loads project files, and loads them again after they changed."""

    def __init__(self, store: OpenStore, configuration: Configuration) -> None:
        self._store = store
        self._configuration = configuration
        self._stamps: dict[str, _Stamp] = {}

    async def load(self, operator_id: str, path: str) -> tuple[Project, bool]:
        """The project in this folder and whether it is new; a broken file marks an old one."""
        folder = await asyncio.to_thread(project_file.folder_of, path)
        known = await self._store.aread(lambda db: projects.by_path(db, operator_id, str(folder)))
        try:
            loaded = await asyncio.to_thread(self._read, folder)
        except DslInvalid as error:
            if known is not None:
                await self._mark(known, error)
            raise
        limit = self._configuration.current.limits.running_sessions_per_project
        return await self._store.awrite(
            lambda db: projects.load(db, operator_id, loaded, default_limit=limit)
        )

    async def refresh(self, project: Project) -> Project:
        """The project, after a look at its files."""
        folder = Path(project.path)
        stamp = await asyncio.to_thread(project_file.stamp, folder)
        if self._stamps.get(project.id) == stamp and project.state == "ready":
            return project
        try:
            if not folder.is_dir():
                raise invalid(project_file.FILE, "the project's folder is gone")
            loaded = await asyncio.to_thread(self._read, folder)
        except DslInvalid as error:
            if project.state == "ready":
                project = await self._mark(project, error)
            return project
        if len(self._stamps) > STAMPS_MAX:
            self._stamps.clear()
        self._stamps[project.id] = stamp
        if loaded.hash == project.dsl_hash and project.state == "ready":
            return project
        return await self._apply(project, loaded)

    async def _apply(self, project: Project, loaded: LoadedFile) -> Project:
        limit = self._configuration.current.limits.running_sessions_per_project
        applied, _ = await self._store.awrite(
            lambda db: projects.load(db, project.created_by, loaded, default_limit=limit)
        )
        return applied

    async def _mark(self, project: Project, error: DslInvalid) -> Project:
        return await self._store.awrite(
            lambda db: projects.mark_invalid(db, project.created_by, project.id, error)
        )

    def _read(self, folder: Path) -> LoadedFile:
        loaded = project_file.load(folder)
        for path, model in loaded.models:
            try:
                self._configuration.check_alias_or_model(model)
            except ValidationFailed as error:
                line, column = loaded.places.get(path, (1, 1))
                raise invalid(
                    project_file.FILE, error.message, line=line, column=column, path=path
                ) from None
        return loaded
