"""The audit log: a session's events, raw or traced to their causes, and all of an operator's."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query
from fastapi.responses import StreamingResponse
from starlette.concurrency import iterate_in_threadpool

from api.dependencies import CurrentOperator, OwnSession, PageCursor, PageLimit, StoreDep, find_own
from api.errors import documented
from api.models import Shown, shows
from api.paging import cut, read_number, read_time
from holdfast.domain.errors import NotFound
from holdfast.storage.database.engine import Db
from holdfast.storage.database.opening import OpenStore
from holdfast.storage.log import causes, events
from holdfast.storage.log.audit import audit
from holdfast.storage.sessions.session_views import make_cursor

router = APIRouter(tags=["audit"])
STREAM_PAGE = 500
SEQ_MAX = 10**15 - 1
AtMs = Annotated[int | None, Query(ge=0, le=2**53)]


class EventsShown(Shown):
    """A page of events."""

    items: list[dict[str, Any]]
    next_cursor: str | None


@router.get(
    "/sessions/{session_id}/events",
    responses=shows(200, EventsShown, also=("application/x-ndjson",)) | documented(404),
)
async def list_events(
    session: OwnSession,
    store: StoreDep,
    since: Annotated[int, Query(ge=0, le=2**53, description="events after this seq")] = 0,
    limit: PageLimit = 50,
    cursor: PageCursor = None,
    format: Annotated[Literal["json", "ndjson"], Query()] = "json",  # noqa: A002 - the wire's name
) -> Any:
    """The event stream as it was written, oldest first; `format=ndjson` streams all of it."""
    after = since if cursor is None else read_number(cursor, most=SEQ_MAX)
    if format == "ndjson":
        lines = _stream(store, session.id, after)
        return StreamingResponse(iterate_in_threadpool(lines), media_type="application/x-ndjson")
    found = await store.aread(lambda db: events.after(db, session.id, after, limit=limit + 1))
    page, following = cut(found, limit, lambda event: str(event.seq))
    return {"items": [causes.event_json(event) for event in page], "next_cursor": following}


@router.get("/sessions/{session_id}/trace", responses=shows(200, Shown) | documented(404))
async def trace_event(
    session: OwnSession,
    store: StoreDep,
    event: Annotated[str | None, Query(min_length=1, max_length=64)] = None,
    limit: PageLimit = 50,
    cursor: PageCursor = None,
) -> dict[str, Any]:
    """Why an event happened: its row, its causes, and the chain back; without `event` a page."""
    if event is not None:
        return await store.aread(
            lambda db: causes.trace(db, causes.find_event(db, session.id, event))
        )
    after = 0 if cursor is None else read_number(cursor, most=SEQ_MAX)

    def traced(db: Db) -> dict[str, Any]:
        found = events.after(db, session.id, after, limit=limit + 1)
        page, following = cut(found, limit, lambda event: str(event.seq))
        items = [causes.traced_event(db, event) for event in page]
        return {"items": items, "next_cursor": following}

    return await store.aread(traced)


@router.get("/audit", responses=shows(200, EventsShown))
async def list_audit(
    operator: CurrentOperator,
    store: StoreDep,
    session_id: Annotated[str | None, Query(max_length=256)] = None,
    type: Annotated[str | None, Query(max_length=64)] = None,  # noqa: A002 - the wire's name
    since: AtMs = None,
    until: AtMs = None,
    limit: PageLimit = 50,
    cursor: PageCursor = None,
) -> dict[str, Any]:
    """Events of all of the caller's sessions, newest first; `type=run.*` takes a family."""
    before = read_time(cursor)

    def look(db: Db) -> dict[str, Any]:
        try:
            wanted = None if session_id is None else find_own(db, operator.id, session_id).id
        except NotFound:
            return {"items": [], "next_cursor": None}
        found = audit(
            db,
            operator.id,
            limit=limit + 1,
            session_id=wanted,
            kind=type,
            since=since,
            until=until,
            before=before,
        )
        page, following = cut(found, limit, lambda event: make_cursor(event.at, event.id))
        return {"items": [causes.event_json(event) for event in page], "next_cursor": following}

    return await store.aread(look)


def _stream(store: OpenStore, session_id: str, after: int) -> Iterator[bytes]:
    """Every event from there on, a page at a time, so that no transaction stays open."""
    while True:
        page = store.read(
            lambda db, seq=after: events.after(db, session_id, seq, limit=STREAM_PAGE)  # type: ignore[misc]
        )
        for event in page:
            yield json.dumps(causes.event_json(event), ensure_ascii=False).encode() + b"\n"
        if len(page) < STREAM_PAGE:
            return
        after = page[-1].seq
