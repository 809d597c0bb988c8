"""New sessions: on the project as it is now, forked from another, or in the place of an old one."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from pydantic import Field

from api.dependencies import find_own
from api.models import RequestBody, Text
from api.services import Services
from holdfast.domain.errors import Conflict, NotFound, ValidationFailed
from holdfast.folders import kernel_places
from holdfast.folders.hidden import is_hidden
from holdfast.storage.database.engine import Db
from holdfast.storage.database.tables import Project, SessionRow
from holdfast.storage.issues import issues
from holdfast.storage.moves import forks
from holdfast.storage.projects import projects
from holdfast.storage.sessions import session_views, sessions, titles
from holdfast.storage.sessions.session_views import SessionShown

DEFAULT_SOURCE = "api"
DEFAULT_MODE = "auto"
SOURCE_MISSING = "Source session not found."


class NewSession(RequestBody):
    """What may be said about a session when it is made."""

    title: Text | None = Field(default=None, max_length=200)
    source: Text | None = Field(default=None, min_length=1, max_length=64)
    model_override: Text | None = Field(default=None, max_length=200)
    bound_issue: Text | None = Field(default=None, max_length=64)
    mode: Text | None = Field(default=None, min_length=1, max_length=32)
    resume_from: Text | None = Field(default=None, max_length=256)
    checkpoint_id: Text | None = Field(default=None, max_length=64)
    head_id: Text | None = Field(default=None, max_length=128)
    message_id: Text | None = Field(default=None, max_length=64)
    working_directory: Text | None = Field(default=None, max_length=4096)
    stuck_guard: bool | None = None


async def create(
    services: Services, operator_id: str, project_id: str, wanted: NewSession, *, session_id: str
) -> SessionShown:
    """The new session as it is sent; the same `session_id` twice is one session."""
    project = await ready_project(services, operator_id, project_id)
    if wanted.model_override is not None:
        services.configuration.check_model(wanted.model_override)
    points = wanted.checkpoint_id, wanted.head_id, wanted.message_id
    if wanted.resume_from is None and any(points):
        raise ValidationFailed("checkpoint_id, head_id and message_id belong to resume_from")
    folder = await asyncio.to_thread(_folder, services, project, wanted.working_directory)

    def make(db: Db) -> SessionShown:
        row = _make(db, services, operator_id, project, wanted, session_id, folder)
        return session_views.view(db, row)

    return await services.store.awrite(make)


async def ready_project(services: Services, operator_id: str, project_id: str) -> Project:
    """The operator's project with its file as it is now, or Conflict when that is broken."""
    known = await services.store.aread(lambda db: projects.get(db, operator_id, project_id))
    project = await services.projects.refresh(known)
    if project.state != "ready":
        raise Conflict("the project is not ready: its project file is invalid", project.error)
    return project


def _make(
    db: Db,
    services: Services,
    operator_id: str,
    project: Project,
    wanted: NewSession,
    session_id: str,
    folder: str | None,
) -> SessionRow:
    known = sessions.find(db, session_id)
    if known is not None:
        return known
    if wanted.bound_issue is not None:
        issues.require_free(db, project.id, wanted.bound_issue)
    columns: dict[str, Any] = {
        **projects.session_columns(project),
        "model_override": wanted.model_override,
        "bound_issue": wanted.bound_issue,
    }
    if wanted.stuck_guard is not None:
        columns["stuck_guard"] = wanted.stuck_guard
    if wanted.resume_from is not None:
        row = forks.fork(
            db,
            services.store.blobs,
            source_session=_source(db, operator_id, wanted.resume_from),
            operator=operator_id,
            new_session_id=session_id,
            checkpoint_id=wanted.checkpoint_id,
            head_id=wanted.head_id,
            message_id=wanted.message_id,
            working_directory=folder,
            source=wanted.source,
            mode=wanted.mode,
            **columns,
        )
    else:
        fresh = SessionRow(
            id=session_id,
            created_by=operator_id,
            working_directory=folder or project.path,
            source=wanted.source or DEFAULT_SOURCE,
            mode=wanted.mode or DEFAULT_MODE,
            **columns,
        )
        row = sessions.create(db, fresh)
    if wanted.title is not None:
        titles.set_title(db, session_id, wanted.title)
    return sessions.get(db, row.id)


def _source(db: Db, operator_id: str, name: str) -> str:
    try:
        return find_own(db, operator_id, name).id
    except NotFound:
        raise NotFound(SOURCE_MISSING) from None


def _folder(services: Services, project: Project, wanted: str | None) -> str | None:
    """An existing folder, none of Holdfast's own; a relative one begins at the project's."""
    if wanted is None:
        return None
    folder = Path(project.path) / wanted
    try:
        resolved = folder.resolve(strict=True)
    except (OSError, RuntimeError):
        raise ValidationFailed("working_directory does not exist") from None
    if not resolved.is_dir():
        raise ValidationFailed("working_directory is not a folder")
    refuse_forbidden(services, resolved, given=Path(project.path))
    return str(resolved)


def refuse_forbidden(services: Services, folder: Path, *, given: Path | None = None) -> None:
    """Nobody works in Holdfast's own folders, but in the one there that the project is.

    Nor in a place of the kernel.
    """
    if kernel_places.is_of_kernel(folder):
        raise ValidationFailed(f"working_directory {kernel_places.WORDS}")
    if is_hidden(folder, services.settings.hidden_places, given=given):
        raise ValidationFailed("working_directory lies in Holdfast's own folders")
