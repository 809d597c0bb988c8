"""Runs: what was done for a message, and how to stop it."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path
from typing_extensions import TypedDict

from api.dependencies import (
    CommandId,
    CommandsDep,
    CurrentOperator,
    OwnSession,
    PageCursor,
    PageLimit,
    StoreDep,
)
from api.errors import documented, gone_as_conflict
from api.models import CallsShown, RunsShown
from api.openapi import AnswerRoute
from api.paging import by_time, cut, read_time
from api.routes.messages import as_answered
from holdfast.domain.commands import Cancel, Retry
from holdfast.domain.errors import NotFound
from holdfast.storage.database.engine import Db
from holdfast.storage.database.tables import Run
from holdfast.storage.sessions import run_views, runs, session_views, sessions
from holdfast.storage.sessions.run_views import RunShown
from holdfast.storage.sessions.session_views import SessionShown, make_cursor

router = APIRouter(tags=["runs"], route_class=AnswerRoute)
RunId = Annotated[str, Path(min_length=1, max_length=64)]


class RetriedShown(TypedDict):
    """The run that does it again."""

    run: RunShown
    session: SessionShown


@router.get("/sessions/{session_id}/runs", responses=documented(404))
async def list_runs(
    session: OwnSession, store: StoreDep, limit: PageLimit = 50, cursor: PageCursor = None
) -> RunsShown:
    """The session's runs, newest first."""

    def page(db: Db) -> RunsShown:
        found = runs.of_session(db, session.id, limit=limit + 1, before=read_time(cursor))
        rows, following = cut(found, limit, by_time)
        return {"items": run_views.views(db, session.id, rows), "next_cursor": following}

    return await store.aread(page)


@router.get("/sessions/{session_id}/runs/{run_id}", responses=documented(404))
async def show_run(session: OwnSession, run_id: RunId, store: StoreDep) -> RunShown:
    """One run."""
    return await store.aread(lambda db: run_views.view(db, _own(db, session.id, run_id)))


@router.get("/sessions/{session_id}/runs/{run_id}/calls", responses=documented(404))
async def list_calls(
    session: OwnSession,
    run_id: RunId,
    store: StoreDep,
    limit: PageLimit = 50,
    cursor: PageCursor = None,
) -> CallsShown:
    """The run's model calls, oldest first, each with the ids of the messages it was shown."""

    def page(db: Db) -> CallsShown:
        run, after = _own(db, session.id, run_id), read_time(cursor)
        found = run_views.calls_of(db, store.blobs, run.id, limit=limit + 1, after=after)
        items, following = cut(
            found, limit, lambda call: make_cursor(call["created_at"], call["id"])
        )
        return {"items": items, "next_cursor": following}

    return await store.aread(page)


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
    await gone_as_conflict(commands.send(session, "cancel", command))
    return await store.aread(lambda db: run_views.view(db, _own(db, session.id, run_id)))


@router.post(
    "/sessions/{session_id}/runs/{run_id}/retry",
    status_code=202,
    response_description="taken: running, or queued",
    responses=documented(404, 409),
)
async def retry_run(
    session: OwnSession,
    run_id: RunId,
    operator: CurrentOperator,
    commands: CommandsDep,
    store: StoreDep,
    command_id: CommandId,
) -> RetriedShown:
    """Run the last run's message again, if it failed or was cancelled; what it said is superseded.

    What its tools did to files and to the world stays done.
    """
    await store.aread(lambda db: _own(db, session.id, run_id))
    command = Retry(command_id=command_id, user_id=operator.id, run_id=run_id)
    answer = await gone_as_conflict(commands.send(session, "retry", command))

    def look(db: Db) -> RetriedShown:
        run = _own(db, session.id, answer.run_id or "")
        row = sessions.get(db, session.id)
        return {
            "run": run_views.view(db, run),
            "session": as_answered(session_views.view(db, row), answer),
        }

    return await store.aread(look)


def _own(db: Db, session_id: str, run_id: str) -> Run:
    run = runs.find(db, run_id)
    if run is None or run.session_id != session_id:
        raise NotFound("Run not found.")
    return run
