"""Projects: load a folder, list, show; and the schema of the project file."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Path, Response
from pydantic import Field

from api.dependencies import CurrentOperator, PageCursor, PageLimit, ServicesDep, StoreDep
from api.errors import documented
from api.models import ProjectShown, ProjectsShown, RequestBody, Text, shows
from api.paging import cut
from holdfast.storage.database.engine import Db
from holdfast.storage.projects import project_file, projects

router = APIRouter(tags=["projects"])
ProjectId = Annotated[str, Path(min_length=1, max_length=64)]


class LoadBody(RequestBody):
    """Which folder, and whether all of its file is to be in force."""

    path: Text = Field(min_length=1, max_length=project_file.PATH_CHARS_MAX)
    trust: bool = False


class TrustBody(RequestBody):
    """Which file: the hash that the operator has seen."""

    dsl_hash: Text = Field(min_length=1, max_length=128)


@router.post(
    "/projects/load",
    status_code=201,
    responses=shows(201, ProjectShown, "loaded")
    | shows(200, ProjectShown, "was loaded already")
    | documented(404, 422),
)
async def load_project(
    body: LoadBody, operator: CurrentOperator, services: ServicesDep, response: Response
) -> dict[str, Any]:
    """Load the project in a folder; a folder without a project file gets the defaults.

    What its file loosens against the file that was trusted last waits for `trust`.
    """
    project, new = await services.projects.load(operator.id, body.path, trust=body.trust)
    response.status_code = 201 if new else 200
    return await services.store.aread(lambda db: projects.views(db, [project])[0])


@router.get("/projects", responses=shows(200, ProjectsShown))
async def list_projects(
    operator: CurrentOperator, store: StoreDep, limit: PageLimit = 50, cursor: PageCursor = None
) -> dict[str, Any]:
    """The caller's projects, oldest first."""

    def page(db: Db) -> dict[str, Any]:
        found = projects.page(db, operator.id, limit=limit + 1, after=cursor)
        rows, following = cut(found, limit, lambda row: row.id)
        return {"items": projects.views(db, rows), "next_cursor": following}

    return await store.aread(page)


@router.get("/projects/{project_id}", responses=shows(200, ProjectShown) | documented(404))
async def show_project(
    project_id: ProjectId, operator: CurrentOperator, services: ServicesDep
) -> dict[str, Any]:
    """One project, true to its file."""
    store = services.store
    known = await store.aread(lambda db: projects.get(db, operator.id, project_id))
    project = await services.projects.refresh(known)
    return await store.aread(lambda db: projects.views(db, [project])[0])


@router.post(
    "/projects/{project_id}/trust",
    responses=shows(200, ProjectShown) | documented(404, 409, 422),
)
async def trust_project(
    project_id: ProjectId, body: TrustBody, operator: CurrentOperator, services: ServicesDep
) -> dict[str, Any]:
    """Trust the project file with this hash: new sessions run with all of it."""
    store = services.store
    known = await store.aread(lambda db: projects.get(db, operator.id, project_id))
    project = await services.projects.trust(known, body.dsl_hash)
    return await store.aread(lambda db: projects.views(db, [project])[0])


@router.get("/dsl/schema")
async def show_schema() -> dict[str, Any]:
    """The JSON Schema of the project file."""
    return project_file.json_schema()
