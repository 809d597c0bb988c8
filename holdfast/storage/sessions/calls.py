"""Model calls: begun before the provider is asked, ended with the answer in one transaction."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sqlalchemy import Update, bindparam, func, select

from holdfast.domain.clock import now_ms
from holdfast.domain.events import CallPut
from holdfast.storage.database.engine import Db
from holdfast.storage.database.rows import KEY, by_key, change, find_row, insert_once, table
from holdfast.storage.database.tables import Call, Message, Run, SessionRow
from holdfast.storage.database.tables_history import Frame
from holdfast.storage.log import events
from holdfast.storage.sessions import requests

_calls, _runs, _sessions, _frames = table(Call), table(Run), table(SessionRow), table(Frame)
_messages = table(Message)
TOKENS = (
    "input_tokens",
    "output_tokens",
    "cache_read_tokens",
    "cache_write_tokens",
    "reasoning_tokens",
)
_COSTS = ("actual_cost_usd", "estimated_cost_usd")


def _session_bill(cost_column: str | None) -> Update:
    values: dict[str, Any] = {name: _sessions.c[name] + bindparam(f"add_{name}") for name in TOKENS}
    if cost_column is not None:
        known = func.coalesce(_sessions.c[cost_column], 0.0)
        values[cost_column] = known + bindparam("add_cost")
    return by_key(_sessions).values(api_calls=_sessions.c.api_calls + 1, **values)


_SESSION_BILLS = {column: _session_bill(column) for column in (None, *_COSTS)}
_RUN_BILL = by_key(_runs).values(
    tokens_in=_runs.c.tokens_in + bindparam("add_in"),
    tokens_out=_runs.c.tokens_out + bindparam("add_out"),
    steps=_runs.c.steps + bindparam("add_steps"),
)
_RUN_BILL_WITH_COST = _RUN_BILL.values(
    cost_usd=func.coalesce(_runs.c.cost_usd, 0.0) + bindparam("add_cost")
)


@dataclass(frozen=True)
class Bill:
    """What one call used and cost."""

    input_tokens: int = 0
    output_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0
    reasoning_tokens: int = 0
    cost_usd: float | None = None
    cost_status: str = "unknown"
    cost_source: str | None = None


def find(db: Db, call_id: str) -> Call | None:
    """The call, or None before it was begun."""
    return find_row(db, Call, call_id)


def get(db: Db, call_id: str) -> Call:
    """The call, which was begun."""
    call = find(db, call_id)
    assert call is not None, "a call is begun before it ends"
    return call


def begin(db: Db, call: Call) -> None:
    """Store a call that is about to be made; a repeated attempt takes the row over."""
    values = call.model_dump()
    values["created_at"] = now_ms()
    if not insert_once(db, Call, values):
        change(
            db,
            Call,
            call.id,
            status="started",
            attempt=call.attempt,
            message_id=call.message_id,
            request_ref=call.request_ref,
            error=None,
            completed_at=None,
            last_head=None,
        )


def finish(db: Db, call: Call, bill: Bill, **columns: Any) -> None:
    """The answer is stored; add what it used to its run and session."""
    used = {name: getattr(bill, name) for name in TOKENS}
    change(
        db,
        Call,
        call.id,
        status="done",
        completed_at=now_ms(),
        cost_usd=bill.cost_usd,
        cost_status=bill.cost_status,
        cost_source=bill.cost_source,
        **used,
        **columns,
    )
    _add_to_session(db, call.session_id, bill, used)
    if call.run_id is not None:
        # Steps are those of the run's own loop; subagents and leaf calls add none.
        _add_to_run(db, call.run_id, bill, steps=1 if call.type == requests.ROOT else 0)
    put = CallPut(call_id=call.id, status="done", call_type=call.type)
    events.append(db, call.session_id, put, run_id=call.run_id, row=("call", call.id))


def fail(db: Db, call_id: str, error: dict[str, Any]) -> None:
    """The provider refused or broke off; the call may be tried again."""
    change(db, Call, call_id, status="failed", error=error, completed_at=now_ms())


def streamed_text(db: Db, session_id: str, message_id: str) -> str:
    """What was streamed for a message that was never finished."""
    rows = (
        select(_frames.c.payload)
        .where(_frames.c.session_id == session_id, _frames.c.type == "delta")
        .order_by(_frames.c.seq)
    )
    payloads = (row.payload for row in db.connection().execute(rows))
    return "".join(one["text"] for one in payloads if one.get("message_id") == message_id)


def unfinished(db: Db, run_id: str, session_id: str) -> dict[str, tuple[str, str]]:
    """Agent path and words, by message id, of what a run streamed but never stored."""
    rows = (
        select(_frames.c.payload)
        .where(_frames.c.session_id == session_id, _frames.c.type == "delta")
        .order_by(_frames.c.seq)
    )
    words: dict[str, tuple[str, str]] = {}
    for (payload,) in db.connection().execute(rows):
        if payload.get("run_id") == run_id:
            message_id = payload["message_id"]
            before = words.get(message_id, ("", ""))[1]
            words[message_id] = (payload["agent_path"], before + payload["text"])
    stored = select(_messages.c.id).where(_messages.c.id.in_(list(words)))
    known = set(db.connection().execute(stored).scalars())
    return {key: value for key, value in words.items() if key not in known}


def cost_of_run(db: Db, run_id: str) -> float:
    """Dollars that the run has cost so far; unknown prices count as nothing."""
    cost = select(func.sum(_calls.c.cost_usd)).where(_calls.c.run_id == run_id)
    return float(db.connection().execute(cost).scalar() or 0.0)


def _add_to_session(db: Db, session_id: str, bill: Bill, used: dict[str, int]) -> None:
    column = None
    if bill.cost_usd is not None:
        column = _COSTS[0] if bill.cost_status == "actual" else _COSTS[1]
    values: dict[str, Any] = {f"add_{name}": count for name, count in used.items()}
    if column is not None:
        values["add_cost"] = bill.cost_usd
    values |= {"cost_status": bill.cost_status, "cost_source": bill.cost_source}
    db.connection().execute(_SESSION_BILLS[column], {KEY: session_id, **values})


def _add_to_run(db: Db, run_id: str, bill: Bill, *, steps: int) -> None:
    values: dict[str, Any] = {
        "add_in": bill.input_tokens,
        "add_out": bill.output_tokens,
        "add_steps": steps,
    }
    statement = _RUN_BILL
    if bill.cost_usd is not None:  # an unknown price is not a price of nothing
        statement, values["add_cost"] = _RUN_BILL_WITH_COST, bill.cost_usd
    db.connection().execute(statement, {KEY: run_id, **values})
