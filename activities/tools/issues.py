"""The tools `todo` and `issue`: what the root agent may do to the issue its session is bound to."""

from __future__ import annotations

from holdfast.agent.tools.offering import UNBOUND
from holdfast.agent.tools.outcome import ToolOutcome
from holdfast.agent.tools.specs import IssueArguments, TodoArguments
from holdfast.domain.errors import Refusal
from holdfast.storage.database.engine import Db
from holdfast.storage.database.opening import OpenStore
from holdfast.storage.database.tables_library import Issue, Todo
from holdfast.storage.issues import issues, todos
from holdfast.storage.issues.todo_markdown import Task, render
from holdfast.storage.sessions import sessions

COMMENTS_SHOWN = 20
OPERATORS_ONLY = ("closed",)
ASK_FIRST = (
    "An issue is resolved only after the operator has looked. Call `checkpoint` first, with what "
    "you did and how it was checked as the reason; when the operator has resumed the session, "
    "call this again."
)


async def run_todo(store: OpenStore, session_id: str, arguments: TodoArguments) -> ToolOutcome:
    """Carry out a batch of todo operations, and show the list."""

    def apply(db: Db) -> ToolOutcome:
        issue = _bound_issue(db, session_id)
        if issue is None:
            return ToolOutcome(UNBOUND, is_error=True)
        ops = [op.model_dump(exclude_none=True) for op in arguments.ops]
        try:
            listed = todos.apply(db, issue.id, ops)
        except Refusal as refusal:
            # Nothing of the batch may stay: the model is told to send all of it again.
            db.rollback()
            return ToolOutcome(f"{refusal.message}. Nothing was changed.", is_error=True)
        return ToolOutcome({"issue": issue.number, "todos": markdown(listed)})

    return await store.awrite(apply)


async def run_issue(store: OpenStore, session_id: str, arguments: IssueArguments) -> ToolOutcome:
    """Read the bound issue, comment on it, or change its status."""

    def act(db: Db) -> ToolOutcome:
        issue = _bound_issue(db, session_id)
        if issue is None:
            return ToolOutcome(UNBOUND, is_error=True)
        try:
            match arguments.op:
                case "get":
                    return _shown(db, issue)
                case "comment":
                    return _commented(db, issue, session_id, arguments.body or "")
                case "transition":
                    return _moved(db, issue, session_id, arguments)
        except Refusal as refusal:
            db.rollback()
            return ToolOutcome(refusal.message, is_error=True)

    return await store.awrite(act)


def markdown(listed: list[Todo]) -> str:
    """Todos as the model and the operator read them."""
    return render(Task(todo.text, todo.status, todo.notes.splitlines()) for todo in listed)


def _bound_issue(db: Db, session_id: str) -> Issue | None:
    bound = sessions.get(db, session_id).bound_issue
    return issues.find(db, bound) if bound is not None else None


def _shown(db: Db, issue: Issue) -> ToolOutcome:
    remarks = issues.comments(db, issue.id)[-COMMENTS_SHOWN:]
    return ToolOutcome(
        {
            "number": issue.number,
            "title": issue.title,
            "status": issue.status,
            "body": issue.body,
            "comments": [{"author": one.author, "body": one.body} for one in remarks],
            "todos": markdown(todos.of_issue(db, issue.id)),
        }
    )


def _commented(db: Db, issue: Issue, session_id: str, body: str) -> ToolOutcome:
    issues.comment(db, issue.id, author="agent", session_id=session_id, body=body)
    return ToolOutcome({"number": issue.number, "commented": True})


def _moved(db: Db, issue: Issue, session_id: str, arguments: IssueArguments) -> ToolOutcome:
    status = arguments.status or ""
    if status in OPERATORS_ONLY:
        return ToolOutcome("Only the operator closes an issue.", is_error=True)
    if status == "resolved" and not issues.operator_has_looked(db, session_id):
        return ToolOutcome(ASK_FIRST, is_error=True)
    issues.edit(db, issue, status=status)
    if arguments.body:
        _commented(db, issue, session_id, arguments.body)
    return ToolOutcome({"number": issue.number, "status": issue.status})
