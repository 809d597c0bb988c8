"""Runs: what was done for a message, and how to stop it."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path

from api.dependencies import (
    CommandId,
    CommandsDep,
    CurrentOperator,
    OwnSession,
    PageCursor,
    PageLimit,
    StoreDep,
)
from api.errors import documented
from api.models import RunsShown
from api.openapi import AnswerRoute
from holdfast.domain.commands import Cancel
from holdfast.domain.errors import Conflict, Gone, NotFound
from holdfast.storage.database.engine import Db
from holdfast.storage.database.tables import Run
from holdfast.storage.sessions import run_views, runs
from holdfast.storage.sessions.run_views import RunShown
from holdfast.storage.sessions.session_views import make_cursor, read_cursor

router = APIRouter(tags=["runs"], route_class=AnswerRoute)
RunId = Annotated[str, Path(min_length=1, max_length=64)]


@router.get("/sessions/{session_id}/runs", responses=documented(404))
async def list_runs(
    session: OwnSession, store: StoreDep, limit: PageLimit = 50, cursor: PageCursor = None
) -> RunsShown:
    """The session's runs, newest first."""

    def page(db: Db) -> RunsShown:
        before = read_cursor(cursor) if cursor is not None else None
        rows = runs.of_session(db, session.id, limit=limit + 1, before=before)
        more = len(rows) > limit
        rows = rows[:limit]
        items = run_views.views(db, session.id, rows)
        following = make_cursor(rows[-1].created_at, rows[-1].id) if more else None
        return {"items": items, "next_cursor": following}

    return await store.aread(page)


@router.get("/sessions/{session_id}/runs/{run_id}", responses=documented(404))
async def show_run(session: OwnSession, run_id: RunId, store: StoreDep) -> RunShown:
    """One run."""
    return await store.aread(lambda db: run_views.view(db, _own(db, session.id, run_id)))


@router.post(
    "/sessions/{session_id}/runs/{run_id}/cancel",
    status_code=202,
    response_description="being cancelled",
    responses=documented(404, 409),
)
async def cancel_run(
    session: OwnSession,
    run_id: RunId,
    operator: CurrentOperator,
    commands: CommandsDep,
    store: StoreDep,
    command_id: CommandId,
) -> RunShown:
    """Stop the run; what it said so far is kept."""
    await store.aread(lambda db: _own(db, session.id, run_id))
    command = Cancel(command_id=command_id, user_id=operator.id, run_id=run_id)
    try:
        await commands.send(session, "cancel", command)
    except Gone as refusal:
        raise Conflict(refusal.message, refusal.details) from None
    return await store.aread(lambda db: run_views.view(db, _own(db, session.id, run_id)))


def _own(db: Db, session_id: str, run_id: str) -> Run:
    run = runs.find(db, run_id)
    if run is None or run.session_id != session_id:
        raise NotFound("Run not found.")
    return run
