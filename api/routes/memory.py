"""The memory of a project's agents: search it, bring it up to date, see how it stands."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Path, Response
from pydantic import Field

from api.dependencies import (
    NAME_CHARS_MAX,
    CommandId,
    CurrentOperator,
    ServicesDep,
)
from api.errors import documented
from api.memory import Memories
from api.models import RequestBody, Shown, Text, shows
from api.services import Services
from holdfast.domain.errors import ValidationFailed
from holdfast.domain.memory import (
    MAX_LIMIT,
    MAX_QUERY_CHARACTERS,
    MemoryHit,
    MemoryStatus,
    SyncReport,
)
from holdfast.storage.database.tables import Operator, Project
from holdfast.storage.projects import projects

router = APIRouter(tags=["memory"])
Agent = Annotated[
    str, Path(min_length=1, max_length=NAME_CHARS_MAX, description="A project's id or name.")
]


class SearchBody(RequestBody):
    """What to remember."""

    query: Text = Field(max_length=MAX_QUERY_CHARACTERS)
    limit: int | None = Field(default=None, ge=1, le=MAX_LIMIT)
    min_score: float | None = Field(default=None, ge=0, le=1)


class SyncBody(RequestBody):
    """Whether the index is built anew."""

    force: bool = False


class MemoryHitsShown(Shown):
    """The best chunks, and how far the answer can be trusted."""

    items: list[MemoryHit]
    synced: bool
    stale: bool
    warnings: list[str]


class MemorySyncShown(Shown):
    """What a sync did; while it goes on there is no report."""

    state: str
    report: SyncReport | None


class MemoryStatusShown(MemoryStatus):
    """What the index holds, how true it is, and whether a sync goes on."""

    project_id: str
    warnings: list[str]
    sync: dict[str, Any]


@router.post("/memory/{agent}/search", responses=shows(200, MemoryHitsShown) | documented(404, 409))
async def search_memory(
    agent: Agent, body: SearchBody, operator: CurrentOperator, services: ServicesDep
) -> dict[str, Any]:
    """The chunks that answer best. What is not indexed yet is indexed first, if that is quick."""
    if not body.query.strip():
        raise ValidationFailed("query must have a word in it")
    project = await _own(services, operator, agent)
    memories: Memories = services.memories
    found = await memories.search(project, body.query, limit=body.limit, min_score=body.min_score)
    services.metrics.memory_searches.labels("stale" if found.stale else "current").inc()
    return {
        "items": found.items,
        "synced": found.synced,
        "stale": found.stale,
        "warnings": found.warnings,
    }


@router.post(
    "/memory/{agent}/sync",
    responses=shows(200, MemorySyncShown)
    | shows(202, MemorySyncShown, "goes on")
    | documented(404, 409),
)
async def sync_memory(
    agent: Agent,
    operator: CurrentOperator,
    services: ServicesDep,
    command_id: CommandId,
    response: Response,
    body: SyncBody | None = None,
) -> dict[str, Any]:
    """Bring the index to what its sources are now; a long sync goes on without us."""
    project = await _own(services, operator, agent)
    force = body is not None and body.force
    report = await services.memories.sync(project, command_id, force=force)
    if report is None:
        response.status_code = 202
        return {"state": "running", "report": None}
    return {"state": "done", "report": report.model_dump()}


@router.get(
    "/memory/{agent}/status", responses=shows(200, MemoryStatusShown) | documented(404, 409)
)
async def show_memory(
    agent: Agent, operator: CurrentOperator, services: ServicesDep
) -> dict[str, Any]:
    """What the index holds, and whether that is what the sources say."""
    project = await _own(services, operator, agent)
    return {"project_id": project.id, **await services.memories.status(project)}


async def _own(services: Services, operator: Operator, agent: str) -> Project:
    """The caller's project, true to its file; another's is as good as none."""
    known = await services.store.aread(lambda db: projects.named(db, operator.id, agent))
    return await services.projects.refresh(known)
