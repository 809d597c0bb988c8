"""Sessions: create, list, show, change, end, and what only hides or copies them."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query
from pydantic import Field

from api.creation import NewSession, create
from api.dependencies import (
    CommandId,
    CommandsDep,
    CurrentOperator,
    OwnSession,
    PageCursor,
    PageLimit,
    ServicesDep,
    StoreDep,
)
from api.errors import documented, gone_as_conflict
from api.models import RequestBody, SessionsShown, Text
from api.openapi import AnswerRoute
from api.routes.projects import ProjectId
from api.services import Services
from holdfast.domain.commands import Command
from holdfast.domain.errors import BadRequest, Gone, NotFound
from holdfast.domain.ids import new_id
from holdfast.domain.lifecycle import OVER, State
from holdfast.storage.database.engine import Db
from holdfast.storage.database.opening import OpenStore
from holdfast.storage.database.tables import SessionRow
from holdfast.storage.projects import projects
from holdfast.storage.sessions import attention, session_views, sessions
from holdfast.storage.sessions.session_views import Filter, SessionShown
from holdfast.storage.upkeep import session_changes

router = APIRouter(tags=["sessions"], route_class=AnswerRoute)


class SessionChange(RequestBody):
    """What may be changed later; null clears."""

    title: Text | None = Field(default=None, max_length=200)
    model_override: Text | None = Field(default=None, max_length=200)
    mode: Text | None = Field(default=None, min_length=1, max_length=32)
    pinned: bool | None = None
    stuck_guard: bool | None = None


class Filters:
    """What both lists may be narrowed by."""

    def __init__(
        self,
        state: Annotated[State | None, Query()] = None,
        source: Annotated[str | None, Query(max_length=64)] = None,
        q: Annotated[str | None, Query(max_length=500)] = None,
        archived: Annotated[bool, Query()] = False,
        attention: Annotated[bool, Query()] = False,
    ) -> None:
        self.fields: dict[str, Any] = {
            "state": state.value if state else None,
            "source": source,
            "q": q,
            "archived": archived,
            "attention": attention,
        }


FiltersDep = Annotated[Filters, Depends(Filters)]


@router.post("/projects/{project_id}/sessions", status_code=201, responses=documented(404, 409))
async def create_session(
    project_id: ProjectId,
    operator: CurrentOperator,
    services: ServicesDep,
    command_id: CommandId,
    body: NewSession | None = None,
) -> SessionShown:
    """A new idle session; with `resume_from` one that goes on from another."""
    wanted = body or NewSession()
    session_views.Machine.cage = await services.terminals.cage()
    return await create(services, operator.id, project_id, wanted, session_id=command_id)


@router.get("/sessions")
async def list_sessions(
    operator: CurrentOperator,
    store: StoreDep,
    filters: FiltersDep,
    limit: PageLimit = 50,
    cursor: PageCursor = None,
) -> SessionsShown:
    """The caller's sessions, newest activity first."""
    return await _page(store, Filter(operator.id, **filters.fields), limit, cursor)


@router.get("/projects/{project_id}/sessions", responses=documented(404))
async def list_project_sessions(
    project_id: ProjectId,
    operator: CurrentOperator,
    store: StoreDep,
    filters: FiltersDep,
    limit: PageLimit = 50,
    cursor: PageCursor = None,
) -> SessionsShown:
    """The caller's sessions of one project, newest activity first."""
    await store.aread(lambda db: projects.get(db, operator.id, project_id))
    wanted = Filter(operator.id, project_id=project_id, **filters.fields)
    return await _page(store, wanted, limit, cursor)


@router.get("/sessions/{session_id}", responses=documented(404))
async def show_session(session: OwnSession, services: ServicesDep) -> SessionShown:
    """One session; project file and terminal host are looked at: `dsl_stale`, `cage`."""
    await _look_at_project(services, session.created_by, session.project_id)
    session_views.Machine.cage = await services.terminals.cage()
    return await shown(services.store, session.id)


@router.put("/sessions/{session_id}", responses=documented(404, 409))
async def change_session(
    session: OwnSession, body: SessionChange, services: ServicesDep
) -> SessionShown:
    """Change title, model, mode or pin; null clears."""
    fields = body.model_dump(exclude_unset=True)
    if fields.get("model_override") is not None:
        services.configuration.check_model(fields["model_override"])
    if "mode" in fields and fields["mode"] is None:
        fields["mode"] = "auto"
    for name, default in (("pinned", False), ("stuck_guard", True)):
        if name in fields and fields[name] is None:
            fields[name] = default

    def edit(db: Db) -> SessionShown:
        return session_views.view(db, session_changes.edit(db, session.id, fields))

    return await services.store.awrite(edit)


@router.delete("/sessions/{session_id}", responses=documented(404, 409))
async def end_session(
    session: OwnSession,
    operator: CurrentOperator,
    commands: CommandsDep,
    store: StoreDep,
    confirm: Annotated[bool, Query()] = False,
) -> SessionShown:
    """End the session; what runs is killed, what was said stays."""
    if not confirm:
        raise BadRequest("ending a session needs confirm=true")
    command = Command(command_id=new_id(), user_id=operator.id)
    await gone_as_conflict(commands.send(session, "end", command))
    return await shown(store, session.id)


@router.post("/sessions/{session_id}/restart", status_code=201, responses=documented(404, 409))
async def restart_session(
    session: OwnSession,
    operator: CurrentOperator,
    commands: CommandsDep,
    services: ServicesDep,
    command_id: CommandId,
) -> SessionShown:
    """A new session on the project file as it is now; the old one is ended (K-128)."""
    wanted = NewSession(
        source=session.source,
        mode=session.mode,
        model_override=session.model_override,
        bound_issue=session.bound_issue,
        working_directory=session.working_directory,
    )
    created = await create(services, operator.id, session.project_id, wanted, session_id=command_id)
    if session.state not in OVER:
        try:
            command = Command(command_id=f"{command_id}.end", user_id=operator.id)
            await commands.send(session, "end", command)
        except Gone:
            pass  # somebody else ended it meanwhile, which is what was asked for
    return created


@router.post("/sessions/{session_id}/archive", responses=documented(404, 409))
async def archive_session(session: OwnSession, store: StoreDep) -> SessionShown:
    """Hide the session from lists."""
    return await _archive(store, session, archived=True)


@router.post("/sessions/{session_id}/unarchive", responses=documented(404))
async def unarchive_session(session: OwnSession, store: StoreDep) -> SessionShown:
    """Show the session in lists again."""
    return await _archive(store, session, archived=False)


@router.post("/sessions/{session_id}/attention/seen", responses=documented(404))
async def see_attention(session: OwnSession, store: StoreDep) -> SessionShown:
    """Somebody has seen that a run failed; what else the session needs stays."""
    await store.awrite(lambda db: attention.see(db, session.id))
    return await shown(store, session.id)


@router.post("/sessions/{session_id}/reopen", responses=documented(404, 409))
async def reopen_session(
    session: OwnSession,
    operator: CurrentOperator,
    commands: CommandsDep,
    store: StoreDep,
    command_id: CommandId,
) -> SessionShown:
    """Open a cleanly ended session again."""
    command = Command(command_id=command_id, user_id=operator.id)
    await gone_as_conflict(commands.send(session, "reopen", command))
    return await shown(store, session.id)


async def shown(store: OpenStore, session_id: str) -> SessionShown:
    """The session as it is now, as it is sent."""
    return await store.aread(lambda db: session_views.view(db, sessions.get(db, session_id)))


async def _page(store: OpenStore, wanted: Filter, limit: int, cursor: str | None) -> SessionsShown:
    items, following = await store.aread(
        lambda db: session_views.page(db, wanted, limit=limit, cursor=cursor)
    )
    return {"items": items, "next_cursor": following}


async def _archive(store: OpenStore, session: SessionRow, *, archived: bool) -> SessionShown:
    def archive(db: Db) -> SessionShown:
        user_id = session.created_by
        row = session_changes.archive(db, session.id, archived=archived, user_id=user_id)
        return session_views.view(db, row)

    return await store.awrite(archive)


async def _look_at_project(services: Services, operator_id: str, project_id: str) -> None:
    try:
        project = await services.store.aread(lambda db: projects.get(db, operator_id, project_id))
    except NotFound:
        return  # an imported session may belong to a project that is gone
    await services.projects.refresh(project)
