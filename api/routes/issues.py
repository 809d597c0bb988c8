"""Issues of a project with their comments and todos, and binding one to a session."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Path, Query
from pydantic import Field, model_validator

from api.dependencies import CurrentOperator, OwnSession, PageCursor, PageLimit, StoreDep
from api.errors import documented
from api.models import RequestBody, Shown, Text, shows
from api.openapi import AnswerRoute
from api.paging import cut, read_number
from api.routes.projects import ProjectId
from api.routes.sessions import shown
from holdfast.storage.database.engine import Db
from holdfast.storage.database.opening import OpenStore
from holdfast.storage.database.tables import Operator
from holdfast.storage.database.tables_library import Todo
from holdfast.storage.issues import issues, todos
from holdfast.storage.issues.todo_markdown import MARKDOWN_CHARS_MAX, Task, parse, render
from holdfast.storage.projects import projects
from holdfast.storage.sessions.session_views import SessionShown

router = APIRouter(tags=["issues"], route_class=AnswerRoute)
IssueId = Annotated[str, Path(min_length=1, max_length=64)]
NUMBER_MAX = 10**9 - 1
Title = Annotated[Text, Field(min_length=1, max_length=issues.TITLE_CHARS_MAX)]
Body = Annotated[Text, Field(max_length=issues.BODY_BYTES_MAX)]
Status = Literal["open", "in_progress", "blocked", "resolved", "closed"]


class IssueShown(Shown):
    """An issue."""

    id: str
    project_id: str
    number: int
    created_by: str
    title: str
    body: str
    status: str
    created_at: int
    updated_at: int


class IssuesShown(Shown):
    """A page of issues."""

    items: list[IssueShown]
    next_cursor: str | None


class TodosShown(Shown):
    """The todos of an issue, and the same as Markdown."""

    items: list[dict[str, Any]]
    next_cursor: str | None
    markdown: str


class NewIssue(RequestBody):
    """An issue to be written."""

    title: Title
    body: Body = ""


class IssueChange(RequestBody):
    """What changes; the rest stays."""

    title: Title | None = None
    body: Body | None = None
    status: Status | None = None


class NewComment(RequestBody):
    """A remark."""

    body: Annotated[Text, Field(min_length=1, max_length=issues.BODY_BYTES_MAX)]


class TodoOp(RequestBody):
    """One operation; the task is named by its text."""

    op: Literal["init", "start", "done", "rm", "drop", "append", "note"]
    text: Annotated[Text, Field(max_length=todos.TEXT_CHARS_MAX)] | None = None
    items: list[Text] | None = Field(default=None, max_length=todos.TODOS_MAX)
    note: Annotated[Text, Field(max_length=todos.NOTE_CHARS_MAX)] | None = None


class TodoChange(RequestBody):
    """Operations in order, the text of one more todo, or the whole list as Markdown."""

    text: Annotated[Text, Field(min_length=1, max_length=todos.TEXT_CHARS_MAX)] | None = None
    ops: list[TodoOp] | None = Field(default=None, min_length=1, max_length=todos.OPS_MAX)
    markdown: Annotated[Text, Field(max_length=MARKDOWN_CHARS_MAX)] | None = None

    @model_validator(mode="after")
    def check_one(self) -> TodoChange:
        """One of the three, and no more."""
        if [self.text, self.ops, self.markdown].count(None) != 2:
            raise ValueError("give either ops, text or markdown")
        if self.text is not None:
            self.ops = [TodoOp(op="append", text=self.text)]
        return self


class Binding(RequestBody):
    """Which issue."""

    issue_id: Annotated[Text, Field(min_length=1, max_length=64)]


@router.post(
    "/projects/{project_id}/issues",
    status_code=201,
    responses=shows(201, IssueShown, "written") | documented(404),
)
async def write_issue(
    project_id: ProjectId, body: NewIssue, operator: CurrentOperator, store: StoreDep
) -> dict[str, Any]:
    """A new open issue with the project's next number."""

    def write(db: Db) -> dict[str, Any]:
        projects.get(db, operator.id, project_id)
        made = issues.create(
            db, project_id, created_by=operator.id, title=body.title, body=body.body
        )
        return issues.view(made)

    return await store.awrite(write)


@router.get("/projects/{project_id}/issues", responses=shows(200, IssuesShown) | documented(404))
async def list_issues(
    project_id: ProjectId,
    operator: CurrentOperator,
    store: StoreDep,
    status: Annotated[Status | None, Query()] = None,
    limit: PageLimit = 50,
    cursor: PageCursor = None,
) -> dict[str, Any]:
    """The project's issues by number."""
    after = 0 if cursor is None else read_number(cursor, most=NUMBER_MAX)

    def page(db: Db) -> dict[str, Any]:
        projects.get(db, operator.id, project_id)
        found = issues.page(db, project_id, limit=limit + 1, after_number=after, status=status)
        rows, following = cut(found, limit, lambda row: str(row.number))
        return {"items": [issues.view(row) for row in rows], "next_cursor": following}

    return await store.aread(page)


@router.get("/issues/{issue_id}", responses=shows(200, IssueShown) | documented(404))
async def show_issue(
    issue_id: IssueId, operator: CurrentOperator, store: StoreDep
) -> dict[str, Any]:
    """One issue."""
    return await store.aread(lambda db: issues.view(issues.get(db, operator.id, issue_id)))


@router.patch("/issues/{issue_id}", responses=shows(200, IssueShown) | documented(404))
async def change_issue(
    issue_id: IssueId, body: IssueChange, operator: CurrentOperator, store: StoreDep
) -> dict[str, Any]:
    """Rephrase an issue or move it on; its first body is kept."""
    fields = body.model_dump(exclude_none=True)

    def change(db: Db) -> dict[str, Any]:
        return issues.view(issues.edit(db, issues.get(db, operator.id, issue_id), **fields))

    return await store.awrite(change)


@router.get("/issues/{issue_id}/comments", responses=shows(200, Shown) | documented(404))
async def list_comments(
    issue_id: IssueId,
    operator: CurrentOperator,
    store: StoreDep,
    limit: PageLimit = 50,
    cursor: PageCursor = None,
) -> dict[str, Any]:
    """The remarks on an issue, oldest first."""

    def page(db: Db) -> dict[str, Any]:
        issue = issues.get(db, operator.id, issue_id)
        found = issues.comments(db, issue.id, limit=limit + 1, after=cursor)
        rows, following = cut(found, limit, lambda row: row.id)
        return {"items": [issues.comment_view(row) for row in rows], "next_cursor": following}

    return await store.aread(page)


@router.post(
    "/issues/{issue_id}/comments",
    status_code=201,
    responses=shows(201, Shown, "added") | documented(404),
)
async def add_comment(
    issue_id: IssueId, body: NewComment, operator: CurrentOperator, store: StoreDep
) -> dict[str, Any]:
    """Add a remark."""

    def add(db: Db) -> dict[str, Any]:
        issue = issues.get(db, operator.id, issue_id)
        return issues.comment_view(
            issues.comment(db, issue.id, author=operator.name, body=body.body)
        )

    return await store.awrite(add)


@router.get("/issues/{issue_id}/todos", responses=shows(200, TodosShown) | documented(404))
async def list_todos(
    issue_id: IssueId, operator: CurrentOperator, store: StoreDep
) -> dict[str, Any]:
    """The issue's todos in their order, and as Markdown."""

    def read(db: Db) -> dict[str, Any]:
        return _listed(todos.of_issue(db, issues.get(db, operator.id, issue_id).id))

    return await store.aread(read)


@router.post("/issues/{issue_id}/todos", responses=shows(200, TodosShown) | documented(404))
async def change_todos(
    issue_id: IssueId, body: TodoChange, operator: CurrentOperator, store: StoreDep
) -> dict[str, Any]:
    """Carry out operations in order, all or none; or take over a whole list as Markdown."""
    return await store.awrite(lambda db: _changed(db, operator, issue_id, body))


@router.put("/sessions/{session_id}/bind", responses=documented(404, 409, 410))
async def bind_issue(session: OwnSession, body: Binding, store: StoreDep) -> SessionShown:
    """Bind an issue to the session; its todos are there again at once."""
    await store.awrite(lambda db: issues.bind(db, session.id, body.issue_id))
    return await shown(store, session.id)


@router.delete("/sessions/{session_id}/bind", responses=documented(404))
async def unbind_issue(session: OwnSession, store: StoreDep) -> SessionShown:
    """Take the session's issue away; the todos stay with the issue."""
    await _unbind(store, session.id)
    return await shown(store, session.id)


async def _unbind(store: OpenStore, session_id: str) -> None:
    await store.awrite(lambda db: issues.unbind(db, session_id))


def _changed(db: Db, operator: Operator, issue_id: str, body: TodoChange) -> dict[str, Any]:
    issue = issues.get(db, operator.id, issue_id)
    if body.ops is not None:
        ops = [op.model_dump(exclude_none=True) for op in body.ops]
        return _listed(todos.apply(db, issue.id, ops))
    return _listed(todos.replace(db, issue.id, parse(body.markdown or "")))


def _listed(rows: list[Todo]) -> dict[str, Any]:
    tasks = (Task(row.text, row.status, row.notes.splitlines()) for row in rows)
    return {
        "items": [todos.view(row) for row in rows],
        "next_cursor": None,
        "markdown": render(tasks),
    }
