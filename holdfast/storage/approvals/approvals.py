"""Approvals: one for a call at most, and the first answer to it wins."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal

from sqlalchemy import Select, and_, bindparam, exists, select, tuple_, update
from typing_extensions import TypedDict

from holdfast.domain.clock import now_ms
from holdfast.domain.errors import Conflict, NotFound
from holdfast.domain.permissions.events import ApprovalDecided, ApprovalRequested
from holdfast.storage.database.engine import Db
from holdfast.storage.database.rows import (
    KEY,
    fields_of,
    find_row,
    insert_once,
    made,
    table,
)
from holdfast.storage.database.tables import (
    Message,
    SessionRow,
    SubagentInvocation,
    ToolCallRow,
)
from holdfast.storage.database.tables_approvals import Approval
from holdfast.storage.log import events

PENDING, ALLOWED, DENIED, EXPIRED, WITHDRAWN = (
    "pending",
    "allowed",
    "denied",
    "expired",
    "withdrawn",
)
TITLE_CHARS_MAX = 200
OPEN_INVOCATIONS = ("spawned", "running")
_approvals, _sessions = table(Approval), table(SessionRow)
_invocations, _messages, _calls = table(SubagentInvocation), table(Message), table(ToolCallRow)
_OF_CALL = select(_approvals).where(_approvals.c.tool_call_id == bindparam(KEY))
_DECIDE = update(_approvals).where(_approvals.c.id == bindparam(KEY), _approvals.c.state == PENDING)
# The subagents of a run that have not ended, each with the subagent that called it.
_AT_WORK = (
    select(_invocations.c.id, _messages.c.invocation_id)
    .join(_calls, _calls.c.id == _invocations.c.tool_call_id)
    .join(_messages, _messages.c.id == _calls.c.message_id)
    .where(_invocations.c.run_id == bindparam(KEY), _invocations.c.state.in_(OPEN_INVOCATIONS))
)
_OLDEST = (
    select(_approvals)
    .where(_approvals.c.session_id == bindparam(KEY), _approvals.c.state == PENDING)
    .order_by(_approvals.c.asked_at, _approvals.c.id)
    .limit(1)
)
State = Literal["pending", "allowed", "denied", "expired", "withdrawn"]


class ApprovalShown(TypedDict):
    """A call that an operator is or was asked about."""

    id: str
    session_id: str
    run_id: str
    tool_call_id: str
    agent_path: str
    source: str
    tool: str
    kind: str
    title: str
    input: dict[str, Any]
    diff: str | None
    paths: list[str]
    command: str | None
    cwd: str
    reason: str
    uncaged: bool
    asked_at: int
    expires_at: int | None
    state: State
    decided_by: str | None
    decided_at: int | None
    note: str | None
    rule_id: str | None


def ask(db: Db, approval: Approval) -> Approval:
    """Ask about a call; the same call twice is one approval."""
    approval.asked_at = now_ms()
    if insert_once(db, Approval, approval.model_dump()):
        requested = ApprovalRequested(
            approval_id=approval.id,
            session_id=approval.session_id,
            run_id=approval.run_id,
            tool_call_id=approval.tool_call_id,
            agent_path=approval.agent_path,
            tool=approval.tool,
            title=approval.title,
            expires_at=approval.expires_at,
        )
        row = ("tool_call", approval.tool_call_id)
        events.append(db, approval.session_id, requested, run_id=approval.run_id, row=row)
    found = of_call(db, approval.tool_call_id)
    assert found is not None, "it was asked about just now"
    return found


def find(db: Db, approval_id: str) -> Approval | None:
    """The approval, or None."""
    return find_row(db, Approval, approval_id)


def of_call(db: Db, tool_call_id: str) -> Approval | None:
    """The approval of a call, or None when nobody was asked about it."""
    row = db.connection().execute(_OF_CALL, {KEY: tool_call_id}).first()
    return None if row is None else made(Approval, row)


def get(db: Db, operator_id: str, approval_id: str) -> Approval:
    """An approval of one of the operator's own sessions, or NotFound."""
    found = find(db, approval_id)
    owner = None if found is None else find_row(db, SessionRow, found.session_id)
    if found is None or owner is None or owner.created_by != operator_id or owner.purged:
        raise NotFound("no such approval")
    return found


def oldest_pending(db: Db, session_id: str) -> Approval | None:
    """What a session has been waiting for longest, or None."""
    row = db.connection().execute(_OLDEST, {KEY: session_id}).first()
    return None if row is None else made(Approval, row)


def page(
    db: Db,
    operator_id: str,
    *,
    limit: int,
    pending: bool = True,
    session_id: str | None = None,
    after: tuple[int, str] | None = None,
) -> list[Approval]:
    """Approvals of the operator's own sessions, oldest first; after the one of this time and id."""
    rows = _own(operator_id)
    if pending:
        rows = rows.where(_approvals.c.state == PENDING)
    if session_id is not None:
        rows = rows.where(_approvals.c.session_id == session_id)
    if after is not None:
        rows = rows.where(tuple_(_approvals.c.asked_at, _approvals.c.id) > after)
    rows = rows.order_by(_approvals.c.asked_at, _approvals.c.id).limit(limit)
    return [made(Approval, row) for row in db.connection().execute(rows)]


def _own(operator_id: str) -> Select[Any]:
    mine = and_(
        _sessions.c.id == _approvals.c.session_id,
        _sessions.c.created_by == operator_id,
        _sessions.c.purged.is_(False),
    )
    return select(_approvals).where(exists().where(mine))


def decide(
    db: Db,
    approval_id: str,
    state: State,
    *,
    decided_by: str | None,
    note: str | None = None,
    rule_id: str | None = None,
) -> bool:
    """Answer what is pending; False when it was answered before."""
    values = {"decided_by": decided_by, "decided_at": now_ms(), "note": note, "rule_id": rule_id}
    taken = db.connection().execute(_DECIDE, {KEY: approval_id, "state": state, **values})
    if taken.rowcount == 0:
        return False
    approval = find(db, approval_id)
    assert approval is not None, "it was changed just now"
    decided = ApprovalDecided(
        approval_id=approval.id,
        session_id=approval.session_id,
        tool_call_id=approval.tool_call_id,
        state=state,
        decided_by=decided_by,
        rule_id=rule_id,
    )
    row = ("tool_call", approval.tool_call_id)
    events.append(db, approval.session_id, decided, run_id=approval.run_id, row=row)
    return True


def withdraw(db: Db, run_id: str, *, invocation_id: str | None = None) -> int:
    """Nobody needs an answer any more: the run, or this subagent of it, is over; how many."""
    rows = select(_approvals.c.id).where(
        _approvals.c.run_id == run_id, _approvals.c.state == PENDING
    )
    if invocation_id is not None:
        rows = rows.where(_approvals.c.invocation_id == invocation_id)
    ids: Iterable[str] = db.connection().execute(rows).scalars().all()
    return sum(decide(db, one, "withdrawn", decided_by=None) for one in ids)


def all_wait(db: Db, run_id: str) -> bool:
    """Whether an operator is asked by the run, and no agent of it is at work meanwhile.

    An agent waits when one of its calls does, or when it waits for a subagent of its own.
    """
    asking = select(_approvals.c.invocation_id).where(
        _approvals.c.run_id == run_id, _approvals.c.state == PENDING
    )
    waiting = set(db.connection().execute(asking).scalars())
    if not waiting:
        return False
    working: set[str | None] = {None}
    for invocation_id, caller in db.connection().execute(_AT_WORK, {KEY: run_id}):
        working.add(invocation_id)
        waiting.add(caller)
    return working <= waiting


def repeated(approval: Approval, wanted: State) -> Approval:
    """An approval that was answered before: the same answer is fine, another is a Conflict."""
    if approval.state == wanted:
        return approval
    who = f" by {approval.decided_by}" if approval.decided_by else ""
    raise Conflict(
        f"the approval was {approval.state} before{who}",
        {
            "state": approval.state,
            "decided_by": approval.decided_by,
            "decided_at": approval.decided_at,
        },
    )


def view(approval: Approval) -> ApprovalShown:
    """The approval as it is sent."""
    return fields_of(approval, ApprovalShown)
