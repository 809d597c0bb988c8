"""What models used and cost."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Query

from api.dependencies import CurrentOperator, StoreDep
from api.models import Shown, shows
from holdfast.storage.sessions.usage import usage

router = APIRouter(tags=["usage"])
AtMs = Annotated[int | None, Query(ge=0, le=2**53)]


class UsageReport(Shown):
    """Usage from several sides."""

    total: dict[str, Any]
    by_model: list[dict[str, Any]]
    by_day: list[dict[str, Any]]
    by_project: list[dict[str, Any]]
    top_sessions: list[dict[str, Any]]


@router.get("/usage", responses=shows(200, UsageReport))
async def show_usage(
    operator: CurrentOperator,
    store: StoreDep,
    since: AtMs = None,
    until: AtMs = None,
    project: Annotated[str | None, Query(max_length=64)] = None,
) -> dict[str, Any]:
    """By model, day and project, and the sessions that used most; estimated beside actual cost."""
    return await store.aread(
        lambda db: usage(db, operator.id, since=since, until=until, project_id=project)
    )
