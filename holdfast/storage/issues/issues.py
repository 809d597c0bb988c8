"""Issues of a project: numbered from 1, with comments, bound to at most one live session."""

from __future__ import annotations

from typing import Any

from sqlalchemy import func
from sqlalchemy import select as core_select
from sqlmodel import col, select

from holdfast.domain.clock import now_ms
from holdfast.domain.errors import Conflict, NotFound, SessionOver, ValidationFailed
from holdfast.domain.events import IssueBound
from holdfast.domain.ids import new_id
from holdfast.domain.lifecycle import OVER, State
from holdfast.storage.database.engine import Db
from holdfast.storage.database.rows import change, step_counter, table
from holdfast.storage.database.tables import Message, Project, SessionRow
from holdfast.storage.database.tables_history import Checkpoint
from holdfast.storage.database.tables_library import Issue, IssueComment
from holdfast.storage.log import events
from holdfast.storage.sessions import sessions

STATUSES = ("open", "in_progress", "blocked", "resolved", "closed")
TITLE_CHARS_MAX = 200
BODY_BYTES_MAX = 16 * 1024
COMMENTS_SHOWN_MAX = 200
_sessions, _messages, _checkpoints = table(SessionRow), table(Message), table(Checkpoint)


def create(db: Db, project_id: str, *, created_by: str, title: str, body: str = "") -> Issue:
    """A new open issue with the project's next number."""
    number = step_counter(db, Project, project_id, "next_issue_number") - 1
    now = now_ms()
    issue = Issue(
        id=new_id(),
        project_id=project_id,
        number=number,
        created_by=created_by,
        title=_title(title),
        body=_body(body),
        created_at=now,
        updated_at=now,
    )
    db.add(issue)
    db.flush()
    return issue


def find(db: Db, issue_id: str) -> Issue | None:
    """The issue, or None."""
    return db.get(Issue, issue_id)


def get(db: Db, operator_id: str, issue_id: str) -> Issue:
    """An issue of one of the operator's own projects, or NotFound."""
    issue = db.get(Issue, issue_id)
    project = db.get(Project, issue.project_id) if issue is not None else None
    if issue is None or project is None or project.created_by != operator_id:
        raise NotFound("no such issue")
    return issue


def page(
    db: Db, project_id: str, *, limit: int, after_number: int = 0, status: str | None = None
) -> list[Issue]:
    """The project's issues after a number, oldest first."""
    rows = select(Issue).where(Issue.project_id == project_id, Issue.number > after_number)
    if status is not None:
        rows = rows.where(Issue.status == status)
    return list(db.exec(rows.order_by(col(Issue.number)).limit(limit)))


def edit(
    db: Db,
    issue: Issue,
    *,
    title: str | None = None,
    body: str | None = None,
    status: str | None = None,
) -> Issue:
    """Change what is given; the first body is kept when it is rephrased."""
    if title is not None:
        issue.title = _title(title)
    if body is not None and body != issue.body:
        if issue.original_body is None:
            issue.original_body = issue.body
        issue.body = _body(body)
    if status is not None:
        if status not in STATUSES:
            raise ValidationFailed(f"status must be one of {', '.join(STATUSES)}")
        issue.status = status
    issue.updated_at = now_ms()
    db.add(issue)
    db.flush()
    return issue


def comment(
    db: Db, issue_id: str, *, author: str, body: str, session_id: str | None = None
) -> IssueComment:
    """Add a remark; none is ever changed."""
    if not body.strip():
        raise ValidationFailed("body: a comment is not empty")
    remark = IssueComment(
        id=new_id(),
        issue_id=issue_id,
        author=author,
        session_id=session_id,
        body=_body(body),
        created_at=now_ms(),
    )
    db.add(remark)
    db.flush()
    return remark


def comments(
    db: Db, issue_id: str, *, limit: int = COMMENTS_SHOWN_MAX, after: str | None = None
) -> list[IssueComment]:
    """The remarks on an issue, oldest first."""
    rows = select(IssueComment).where(IssueComment.issue_id == issue_id)
    if after is not None:
        rows = rows.where(col(IssueComment.id) > after)
    return list(db.exec(rows.order_by(col(IssueComment.id)).limit(limit)))


def require_free(db: Db, project_id: str, issue_id: str, *, session_id: str | None = None) -> Issue:
    """The issue, if a session of its project may be bound to it now: one live session at a time."""
    issue = db.get(Issue, issue_id)
    if issue is None or issue.project_id != project_id:
        raise NotFound("no such issue")
    taken = core_select(_sessions.c.id).where(
        _sessions.c.bound_issue == issue_id,
        _sessions.c.state.not_in([state.value for state in OVER]),
        _sessions.c.id != (session_id or ""),
    )
    other = db.connection().execute(taken.limit(1)).scalar()
    if other is not None:
        raise Conflict(
            f"issue #{issue.number} is bound to another session; unbind or end that one first",
            {"session_id": other},
        )
    return issue


def bind(db: Db, session_id: str, issue_id: str) -> SessionRow:
    """Bind the session to an issue of its project; its todos are left as they are."""
    session = sessions.lock(db, session_id)
    if State(session.state) in OVER:
        raise SessionOver("bind", session.state)
    require_free(db, session.project_id, issue_id, session_id=session_id)
    return _bound(db, session, issue_id)


def unbind(db: Db, session_id: str) -> SessionRow:
    """Take the session's issue away; unbound already, nothing happens."""
    return _bound(db, sessions.lock(db, session_id), None)


def operator_has_looked(db: Db, session_id: str) -> bool:
    """K-117: a checkpoint of the model, resumed by the operator, since the operator last spoke."""
    spoke = core_select(func.max(_messages.c.seq)).where(
        _messages.c.session_id == session_id,
        _messages.c.role == "operator",
        _messages.c.agent_path == "primary",
    )
    last_spoken = db.connection().execute(spoke).scalar() or 0
    resumed = core_select(_checkpoints.c.id).where(
        _checkpoints.c.session_id == session_id,
        _checkpoints.c.created_by == "model",
        _checkpoints.c.resumed_at.is_not(None),
        _checkpoints.c.rolled_back.is_(False),
        _checkpoints.c.message_seq >= last_spoken,
    )
    return db.connection().execute(resumed.limit(1)).first() is not None


def view(issue: Issue) -> dict[str, Any]:
    """An issue as it is sent."""
    return issue.model_dump()


def comment_view(remark: IssueComment) -> dict[str, Any]:
    """A remark as it is sent."""
    return remark.model_dump()


def _bound(db: Db, session: SessionRow, issue_id: str | None) -> SessionRow:
    if session.bound_issue != issue_id:
        change(db, SessionRow, session.id, bound_issue=issue_id, updated_at=now_ms())
        bound = IssueBound(session_id=session.id, issue_id=issue_id)
        events.append(db, session.id, bound, row=("session", session.id))
    return sessions.get(db, session.id)


def _title(title: str) -> str:
    text = " ".join(title.split())
    if not 0 < len(text) <= TITLE_CHARS_MAX:
        raise ValidationFailed(f"title: an issue's title has 1 to {TITLE_CHARS_MAX} characters")
    return text


def _body(body: str) -> str:
    if len(body.encode("utf-8", "surrogatepass")) > BODY_BYTES_MAX:
        raise ValidationFailed("body: at most 16 KB")
    return body
