"""Search over everything that was said, and the state of its index."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query

from api.dependencies import CurrentOperator, PageCursor, PageLimit, StoreDep, find_own
from api.models import Shown, shows
from api.paging import read_number
from holdfast.domain.errors import NotFound
from holdfast.storage.database.engine import Db
from holdfast.storage.projects import projects
from holdfast.storage.search.finder import Answer, Search, find
from holdfast.storage.search.indexer import progress, reset
from holdfast.storage.search.scope import Filters

router = APIRouter(tags=["search"])
QUERY_CHARS_MAX = 100_000
OFFSET_MAX = 100_000
# Roles by the names that models and other exports use.
_ROLES = {"user": ("operator",), "assistant": ("primary", "subagent")}
Names = Annotated[list[str] | None, Query(max_length=50)]


class HitsShown(Shown):
    """Hits, and how far the answer can be trusted."""

    items: list[dict[str, Any]]
    next_cursor: str | None
    ranked: bool
    complete: bool
    matched: str
    index: dict[str, Any]


class IndexShown(Shown):
    """How far the index is."""

    state: str
    watermark: int
    newest: int
    behind: int


@router.get("/search", responses=shows(200, HitsShown))
async def search_messages(
    operator: CurrentOperator,
    store: StoreDep,
    q: Annotated[str, Query(max_length=QUERY_CHARS_MAX)] = "",
    source: Names = None,
    exclude_source: Names = None,
    role: Names = None,
    project: Annotated[str | None, Query(max_length=256)] = None,
    session: Annotated[str | None, Query(max_length=256)] = None,
    since: Annotated[int | None, Query(ge=0, le=2**53)] = None,
    until: Annotated[int | None, Query(ge=0, le=2**53)] = None,
    sort: Annotated[Literal["relevance", "recency"], Query()] = "relevance",
    limit: PageLimit = 50,
    cursor: PageCursor = None,
) -> dict[str, Any]:
    """Words, "phrases", AND, OR, NOT, ( ), prefix*; any text is a query."""

    def filters(db: Db) -> Filters | None:
        try:
            return Filters(
                operator_id=operator.id,
                sources=_list(source),
                exclude_sources=_list(exclude_source),
                roles=tuple(name for given in _list(role) for name in _ROLES.get(given, (given,))),
                project_id=None if project is None else projects.get(db, operator.id, project).id,
                session_id=None if session is None else find_own(db, operator.id, session).id,
                since=since,
                until=until,
            )
        except NotFound:
            return None  # nothing of what does not exist can be found

    scope = await store.aread(filters)
    offset = 0 if cursor is None else read_number(cursor, most=OFFSET_MAX)
    if scope is None:
        index = await asyncio.to_thread(progress, store)
        return _shown(Answer(index=index.to_json()), offset, limit)
    answer = await asyncio.to_thread(find, store, Search(q, scope, sort, limit, offset))
    return _shown(answer, offset, limit)


@router.post("/admin/reindex", status_code=202, responses=shows(202, IndexShown))
async def rebuild_index(_operator: CurrentOperator, store: StoreDep) -> dict[str, Any]:
    """Throw the index away; the worker fills it again, and searches say so until it is whole."""
    await asyncio.to_thread(reset, store)
    return (await asyncio.to_thread(progress, store)).to_json()


@router.get("/admin/reindex", responses=shows(200, IndexShown))
async def show_index(_operator: CurrentOperator, store: StoreDep) -> dict[str, Any]:
    """How far the index is."""
    return (await asyncio.to_thread(progress, store)).to_json()


def _shown(answer: Answer, offset: int, limit: int) -> dict[str, Any]:
    return {
        "items": answer.items,
        "next_cursor": str(offset + limit) if answer.more else None,
        "ranked": answer.ranked,
        "complete": answer.complete,
        "matched": answer.matched,
        "index": answer.index,
    }


def _list(given: list[str] | None) -> tuple[str, ...]:
    """Repeated parameters and commas mean the same."""
    parts = (part.strip() for value in given or [] for part in value.split(","))
    return tuple(part for part in parts if part)
