"""What a session did: the files that it changed, and its timeline."""

from __future__ import annotations

import asyncio
import json
from typing import Annotated, Any

from fastapi import APIRouter, Query
from fastapi.responses import PlainTextResponse
from typing_extensions import TypedDict

from api.dependencies import OwnSession, PageCursor, PageLimit, ServicesDep, StoreDep
from api.errors import documented
from api.openapi import AnswerRoute
from api.paging import by_time, cut, read_time
from api.services import Services
from holdfast.domain.checkpoint_steps import ChangesStep
from holdfast.domain.errors import ValidationFailed
from holdfast.storage.database.engine import Db
from holdfast.storage.database.tables import SessionRow
from holdfast.storage.moves import checkpoints, timeline
from holdfast.storage.moves.timeline import SpanShown
from holdfast.storage.sessions import runs

router = APIRouter(tags=["changes"], route_class=AnswerRoute)
CHECKPOINT = "checkpoint:"
Since = Annotated[
    str,
    Query(max_length=80, description="start, run (the last one) or checkpoint:{id}"),
]


class FileShown(TypedDict):
    """A file that is not what it was."""

    path: str
    status: str
    additions: int
    deletions: int
    binary: bool
    old_path: str | None


class ChangesShown(TypedDict):
    """The files that changed; `not_compared` were too large for the snapshots."""

    items: list[FileShown]
    truncated: bool
    not_compared: list[str]
    note: str


class TimelineShown(TypedDict):
    """The spans of a page of runs, by begin; `next_cursor` leads to earlier runs."""

    items: list[SpanShown]
    next_cursor: str | None


@router.get("/sessions/{session_id}/changes", responses=documented(404, 409))
async def list_changes(
    session: OwnSession, services: ServicesDep, since: Since = "start"
) -> ChangesShown:
    """The files that are not what they were, whoever changed them."""
    found: ChangesShown = await _asked(services, session, await _step(services, session, since))
    return found


@router.get(
    "/sessions/{session_id}/changes/diff",
    responses=documented(404, 409),
    response_class=PlainTextResponse,
)
async def show_diff(
    session: OwnSession,
    services: ServicesDep,
    since: Since = "start",
    path: Annotated[str | None, Query(min_length=1, max_length=4096)] = None,
) -> PlainTextResponse:
    """The same as a unified diff, of one path or of all; binary and huge files are only named."""
    step = await _step(services, session, since, diff=True, path=path)
    return PlainTextResponse((await _asked(services, session, step))["diff"])


@router.get("/sessions/{session_id}/timeline", responses=documented(404))
async def show_timeline(
    session: OwnSession, store: StoreDep, limit: PageLimit = 50, cursor: PageCursor = None
) -> TimelineShown:
    """What ran when: the last `limit` runs with their model and tool calls, subagents, pauses."""

    def page(db: Db) -> TimelineShown:
        found = runs.of_session(db, session.id, limit=limit + 1, before=read_time(cursor))
        rows, following = cut(found, limit, by_time)
        return {"items": timeline.spans(db, session.id, rows), "next_cursor": following}

    return await store.aread(page)


async def _step(services: Services, session: SessionRow, since: str, **what: Any) -> ChangesStep:
    checkpoint_id = since.removeprefix(CHECKPOINT) if since.startswith(CHECKPOINT) else None
    if checkpoint_id is not None:
        await services.store.aread(lambda db: checkpoints.get(db, session.id, checkpoint_id))
    elif since not in ("start", "run"):
        raise ValidationFailed("since is start, run or checkpoint:{id}")
    return ChangesStep(session_id=session.id, since=since, checkpoint_id=checkpoint_id, **what)


async def _asked(services: Services, session: SessionRow, step: ChangesStep) -> Any:
    blob_id = await services.changes.show(session, step)
    return json.loads(await asyncio.to_thread(services.store.blobs.read, blob_id))
