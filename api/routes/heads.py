"""Heads: the states that runs and checkpoints left, and two sessions side by side."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Path, Query

from api.dependencies import (
    NAME_CHARS_MAX,
    CurrentOperator,
    OwnSession,
    PageCursor,
    PageLimit,
    StoreDep,
    find_own,
)
from api.errors import documented
from api.models import Shown, shows
from api.paging import cut, read_number
from holdfast.storage.database.engine import Db
from holdfast.storage.moves import comparisons, heads

router = APIRouter(tags=["heads"])
ENTRIES_MAX = 10_000
NUMBER_MAX = 10**18 - 1
HeadId = Annotated[str, Path(min_length=1, max_length=128)]
SessionName = Annotated[str, Path(min_length=1, max_length=NAME_CHARS_MAX)]


class HeadShown(Shown):
    """A head."""

    id: str
    session_id: str
    basis: str | None
    run_id: str | None
    checkpoint_id: str | None
    created_at: int
    current: bool


class HeadsShown(Shown):
    """A page of heads."""

    items: list[HeadShown]
    next_cursor: str | None


@router.get("/sessions/{session_id}/heads", responses=shows(200, HeadsShown) | documented(404))
async def list_heads(
    session: OwnSession, store: StoreDep, limit: PageLimit = 50, cursor: PageCursor = None
) -> dict[str, Any]:
    """The session's heads, newest first."""

    def page(db: Db) -> dict[str, Any]:
        before = None if cursor is None else read_number(cursor, most=NUMBER_MAX)
        found = heads.of_session(db, session.id, limit=limit + 1, before=before)
        rows, following = cut(found, limit, lambda row: str(row.number))
        items = [heads.head_json(row, current=session.current_head) for row in rows]
        return {"items": items, "next_cursor": following}

    return await store.aread(page)


@router.get(
    "/sessions/{session_id}/heads/{head_id}/state", responses=shows(200, Shown) | documented(404)
)
async def show_state(session: OwnSession, head_id: HeadId, store: StoreDep) -> dict[str, Any]:
    """The whole state at a head, put together from its deltas; long collections are cut."""

    def read(db: Db) -> dict[str, Any]:
        head = heads.get(db, session.id, head_id)
        state = heads.materialize(store.blobs, head.id)
        collections = state["collections"]
        state["counts"] = {name: len(entries) for name, entries in collections.items()}
        state["truncated"] = any(len(entries) > ENTRIES_MAX for entries in collections.values())
        state["collections"] = {
            name: entries[-ENTRIES_MAX:] for name, entries in collections.items()
        }
        return {"head": heads.head_json(head, current=session.current_head), "state": state}

    return await store.aread(read)


@router.get(
    "/sessions/{session_id}/compare/{other_id}", responses=shows(200, Shown) | documented(404)
)
async def compare_sessions(
    session: OwnSession,
    other_id: SessionName,
    operator: CurrentOperator,
    store: StoreDep,
    limit: Annotated[int, Query(ge=1, le=500)] = comparisons.MESSAGES_SHOWN,
) -> dict[str, Any]:
    """Where two sessions last agreed, and what each did since."""

    def read(db: Db) -> dict[str, Any]:
        other = find_own(db, operator.id, other_id)
        return comparisons.compare(db, session.id, other.id, limit=limit)

    return await store.aread(read)
