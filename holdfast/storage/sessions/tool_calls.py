"""Tool calls: stored with the message that asks for them, closed with their result."""

from __future__ import annotations

from typing import Any

from sqlalchemy import bindparam, func, select, update

from holdfast.domain.clock import now_ms
from holdfast.domain.events import CallPut
from holdfast.domain.ids import new_id
from holdfast.domain.tools import PROCESS_TOOLS
from holdfast.storage.database.engine import Db
from holdfast.storage.database.rows import (
    KEY,
    change,
    find_row,
    insert_all_once,
    made,
    step_counter,
    table,
)
from holdfast.storage.database.tables import Message, SessionRow, ToolCallRow
from holdfast.storage.hosts import executions
from holdfast.storage.log import events, frames
from holdfast.storage.sessions import messages
from holdfast.storage.sessions.message_views import message_json

_calls = table(ToolCallRow)
OPEN = ("pending", "running")
_CLOSE = update(_calls).where(_calls.c.id == bindparam(KEY), _calls.c.state.in_(OPEN))


def add(db: Db, calls: list[ToolCallRow]) -> None:
    """Store the calls of one assistant message."""
    if not calls:
        return
    stamp = {"created_at": now_ms()}
    insert_all_once(db, ToolCallRow, [{**call.model_dump(), **stamp} for call in calls])
    step_counter(db, SessionRow, calls[0].session_id, "tool_call_count", len(calls))
    shown = (("tool_call", {**tool_call_json(call), **stamp}) for call in calls)
    frames.append(db, calls[0].session_id, *shown)


def find(db: Db, call_id: str) -> ToolCallRow | None:
    """The tool call, or None."""
    return find_row(db, ToolCallRow, call_id)


def open_of_message(db: Db, message_id: str) -> list[ToolCallRow]:
    """The calls of an assistant message that have no result yet."""
    rows = select(_calls).where(_calls.c.message_id == message_id, _calls.c.state.in_(OPEN))
    return [
        made(ToolCallRow, row) for row in db.connection().execute(rows.order_by(_calls.c.position))
    ]


def start(db: Db, call_id: str) -> ToolCallRow:
    """Note that a worker takes the call; the row as it was tells whether one did already."""
    before = find(db, call_id)
    assert before is not None, "a tool call is stored before it is made"
    if before.state in OPEN:
        change(db, ToolCallRow, call_id, state="running", attempt=before.attempt + 1)
    return before


def release(db: Db, call_id: str) -> None:
    """The call was not made: the next attempt is the first one again."""
    db.connection().execute(
        update(_calls)
        .where(_calls.c.id == call_id, _calls.c.state == "running")
        .values(state="pending", attempt=0)
    )


def forgive(db: Db, call_id: str) -> None:
    """An attempt ended without the death of its worker, so it does not count as one.

    The first attempt at a read-only call is not noted: with this it stands at minus one.
    """
    db.connection().execute(
        update(_calls)
        .where(_calls.c.id == call_id, _calls.c.state.in_(OPEN))
        .values(attempt=_calls.c.attempt - 1)
    )


def close(
    db: Db,
    call: ToolCallRow,
    *,
    text: str,
    output: Any,
    failed: bool = False,
    diff: str = "",
    output_ref: str | None = None,
    invocation_id: str | None = None,
) -> Message | None:
    """Store the result and the message that carries it to the model; None if it was there.

    `diff` goes along for people, in the message's metadata and in the frame.
    """
    status = "failed" if failed else "done"
    result = {"state": status, "output": output, "completed_at": now_ms()}
    message_id = new_id()
    stored = {**result, "output_ref": output_ref, "result_message_id": message_id}
    taken = db.connection().execute(_CLOSE, {KEY: call.id, **stored})
    if taken.rowcount == 0:
        return None
    if call.tool_name in PROCESS_TOOLS:
        executions.settle(db, call.id)
    shown = {"diff": diff} if diff else {}
    message = messages.append(
        db,
        call.session_id,
        id=message_id,
        run_id=call.run_id,
        role="tool",
        agent_path=call.caller,
        content=text,
        tool_call_id=call.provider_call_id,
        tool_name=call.tool_name,
        invocation_id=invocation_id,
        meta={"tool_call": call.id, "failed": failed, **shown},
    )
    frames.append(
        db,
        call.session_id,
        ("tool_result", {**tool_call_json(call), **result, **shown}),
        ("message", {"message": message_json(message, [])}),
    )
    put = CallPut(call_id=call.id, status=status, call_type=call.tool_name)
    events.append(db, call.session_id, put, run_id=call.run_id, row=("tool_call", call.id))
    return message


def abandon(db: Db, run_id: str, why: str) -> int:
    """Close what is still open in a run that is over: the model sees that it was interrupted."""
    closed = 0
    rows = select(_calls).where(_calls.c.run_id == run_id, _calls.c.state.in_(OPEN))
    for row in db.connection().execute(rows.order_by(_calls.c.position)).all():
        call = made(ToolCallRow, row)
        asked = messages.find(db, call.message_id) if call.message_id else None
        output = {"error": why}
        invocation = asked.invocation_id if asked is not None else None
        closed += (
            close(db, call, text=why, output=output, failed=True, invocation_id=invocation)
            is not None
        )
    return closed


def count_since(db: Db, session_id: str, tool_name: str, since: int) -> int:
    """How many calls of a tool were taken up after a time."""
    calls = select(func.count()).where(
        _calls.c.session_id == session_id,
        _calls.c.tool_name == tool_name,
        _calls.c.created_at >= since,
        _calls.c.attempt > 0,
    )
    return int(db.connection().execute(calls).scalar_one())


def tool_call_json(call: ToolCallRow) -> dict[str, Any]:
    """A tool call as the wire shows it."""
    return {
        "id": call.id,
        "run_id": call.run_id,
        "message_id": call.message_id,
        "agent_path": call.caller,
        "tool_name": call.tool_name,
        "input": call.input,
        "output": call.output,
        "state": call.state,
        "created_at": call.created_at,
        "completed_at": call.completed_at,
    }
