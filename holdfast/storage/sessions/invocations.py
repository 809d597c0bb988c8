"""Subagents at work: one row each, from its start to the one end that wins."""

from __future__ import annotations

from typing import Any

from sqlalchemy import bindparam, func, select, update

from holdfast.domain.clock import now_ms
from holdfast.domain.events import SubagentFinished, SubagentStarted
from holdfast.storage.approvals import approvals
from holdfast.storage.database.engine import Db
from holdfast.storage.database.rows import KEY, find_row, insert_once, made, table
from holdfast.storage.database.tables import Message, SubagentInvocation
from holdfast.storage.log import events, frames
from holdfast.storage.sessions import attention, messages
from holdfast.storage.sessions.message_views import message_json

OPEN = ("spawned", "running")
EXIT_CODES = {"done": 0, "failed": 1, "killed": 137}
_invocations, _messages = table(SubagentInvocation), table(Message)
_OPEN_OF_RUN = select(_invocations).where(
    _invocations.c.run_id == bindparam(KEY), _invocations.c.state.in_(OPEN)
)


def begin(db: Db, row: SubagentInvocation, prompt: str, *, head: str | None = None) -> None:
    """Store a subagent that starts, with its prompt as the first message it sees.

    `head` is its caller's. It works in its caller's session, from an empty context (decision 20).
    """
    row.spawned_at = now_ms()
    row.state = "running"
    row.callee_session = row.session_id
    row.caller_head_before = head
    if not insert_once(db, SubagentInvocation, row.model_dump()):
        return
    message = messages.append(
        db,
        row.session_id,
        run_id=row.run_id,
        role="operator",
        agent_path=row.agent_path,
        invocation_id=row.id,
        content=prompt,
        meta={"kind": "subagent_prompt"},
    )
    frames.append(db, row.session_id, ("message", {"message": message_json(message, [])}))
    started = SubagentStarted(invocation_id=row.id, run_id=row.run_id, name=row.subagent_name)
    events.append(db, row.session_id, started, run_id=row.run_id, row=("subagent", row.id))


def find(db: Db, invocation_id: str) -> SubagentInvocation | None:
    """The subagent, or None."""
    return find_row(db, SubagentInvocation, invocation_id)


def count_open(db: Db, run_id: str) -> int:
    """How many subagents of the run are at work."""
    working = _invocations.c.run_id == run_id, _invocations.c.state.in_(OPEN)
    return int(db.connection().execute(select(func.count()).where(*working)).scalar_one())


def end(db: Db, row: SubagentInvocation, state: str, error: dict[str, Any] | None = None) -> bool:
    """Note how a subagent ended; False when it had ended before."""
    taken = db.connection().execute(
        update(_invocations)
        .where(_invocations.c.id == row.id, _invocations.c.state.in_(OPEN))
        .values(
            state=state,
            exited_at=now_ms(),
            exit_code=EXIT_CODES[state],
            error=error,
            last_head=None,
        )
    )
    if taken.rowcount == 0:
        return False
    if approvals.withdraw(db, row.run_id, invocation_id=row.id):
        attention.look_again(db, row.session_id)
    finished = SubagentFinished(
        invocation_id=row.id, run_id=row.run_id, name=row.subagent_name, state=state
    )
    events.append(db, row.session_id, finished, run_id=row.run_id, row=("subagent", row.id))
    return True


def kill_open(db: Db, run_id: str) -> int:
    """The run is over, and with it whatever of it was still at work; how many."""
    rows = db.connection().execute(_OPEN_OF_RUN, {KEY: run_id})
    working = [made(SubagentInvocation, row) for row in rows]
    return sum(end(db, row, "killed") for row in working)


def last_answer(db: Db, invocation_id: str) -> str:
    """What the subagent said last; empty when it said nothing."""
    said = (
        select(_messages.c.content)
        .where(
            _messages.c.invocation_id == invocation_id,
            _messages.c.role == "subagent",
            _messages.c.content != "",
        )
        .order_by(_messages.c.seq.desc())
        .limit(1)
    )
    return str(db.connection().execute(said).scalar() or "")
