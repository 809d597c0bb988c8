"""Runs as the wire shows them: the record of K-039 with its messages, tool calls and subagents.

Its model calls are listed apart, each with the id of every message it was shown.
"""

from __future__ import annotations

from typing import Any, TypeVar, cast

from sqlalchemy import Table, select, tuple_
from typing_extensions import TypedDict

from holdfast.storage.database.blobs import BlobMissing, BlobStore
from holdfast.storage.database.engine import Db
from holdfast.storage.database.rows import fields_of, table
from holdfast.storage.database.tables import (
    Call,
    Run,
    SessionRow,
    SubagentInvocation,
    ToolCallRow,
)
from holdfast.storage.sessions import messages, requests
from holdfast.storage.sessions.lineage import levels, superseded
from holdfast.storage.sessions.message_views import MessageShown, message_json
from holdfast.storage.sessions.session_views import TroubleShown

ROWS_MAX = 5000
Part = TypeVar("Part", "ToolCallShown", "InvocationShown")
_tool_calls, _invocations = table(ToolCallRow), table(SubagentInvocation)
_calls, _sessions = table(Call), table(SessionRow)
_place = tuple_(_calls.c.created_at, _calls.c.id)


class ToolCallShown(TypedDict):
    """A tool call of a run."""

    id: str
    run_id: str
    caller: str
    tool_name: str
    input: dict[str, Any]
    output: Any
    state: str
    created_at: int
    completed_at: int | None


class InvocationShown(TypedDict):
    """A subagent at work in a run."""

    id: str
    type: str | None
    run_id: str
    subagent_name: str
    agent_path: str
    cage_id: str | None
    callee_session: str | None
    caller_head_before: str | None
    caller_head_after: str | None
    callee_head_before: str | None
    callee_head_after: str | None
    state: str
    spawned_at: int
    exited_at: int | None
    exit_code: int | None
    error: dict[str, Any] | None


class StoredRun(TypedDict):
    """The fields of a run that are columns of its row."""

    id: str
    session_id: str
    state: str
    created_at: int
    started_at: int | None
    completed_at: int | None
    duration_ms: int | None
    tokens_in: int
    tokens_out: int
    cost_usd: float | None
    steps: int
    error: dict[str, Any] | None
    finish_reason: str | None


class RunShown(StoredRun):
    """A run."""

    trouble: TroubleShown | None  # with its provider, while it lasts
    operator_message: MessageShown | None
    primary_response: MessageShown | None
    tool_calls: list[ToolCallShown]
    subagent_invocations: list[InvocationShown]


class StoredCall(TypedDict):
    """The facts of a call: who asked which model, from which head, and what it used."""

    id: str
    session_id: str
    run_id: str | None
    head: str | None
    step: int
    attempt: int
    agent_path: str
    type: str
    status: str
    request_ref: str | None
    response_ref: str | None
    message_id: str | None
    error: dict[str, Any] | None
    model: str | None
    provider: str | None
    input_tokens: int
    output_tokens: int
    cost_usd: float | None
    created_at: int
    completed_at: int | None


class CallShown(StoredCall):
    """A model call."""

    request: dict[str, Any] | None


def view(db: Db, run: Run) -> RunShown:
    """One run with everything that belongs to it."""
    return views(db, run.session_id, [run])[0]


def views(db: Db, session_id: str, runs: list[Run]) -> list[RunShown]:
    """Several runs of one session, with a handful of queries in all."""
    ids = {key for run in runs for key in (run.operator_message, run.primary_response) if key}
    causes = superseded(db, levels(db, session_id)) if ids else {}
    found = {
        message.id: message_json(message, causes.get(message.id, []))
        for message in messages.by_ids(db, ids)
    }
    trouble = _trouble(db, session_id) if any(run.state == "running" for run in runs) else None
    run_ids = [run.id for run in runs]
    calls = _by_run(db, _tool_calls, run_ids, ToolCallShown)
    invocations = _by_run(db, _invocations, run_ids, InvocationShown)
    return [
        {
            **fields_of(run, StoredRun),
            "trouble": trouble if trouble and trouble["run_id"] == run.id else None,
            "operator_message": found.get(run.operator_message or ""),
            "primary_response": found.get(run.primary_response or ""),
            "tool_calls": calls.get(run.id, []),
            "subagent_invocations": invocations.get(run.id, []),
        }
        for run in runs
    ]


def calls_of(
    db: Db, blobs: BlobStore, run_id: str, *, limit: int, after: tuple[int, str] | None = None
) -> list[CallShown]:
    """The run's model calls, oldest first, those behind the place `after` of time and id."""
    rows = select(*(_calls.c[name] for name in StoredCall.__annotations__))
    rows = rows.where(_calls.c.run_id == run_id)
    if after is not None:
        rows = rows.where(_place > after)
    rows = rows.order_by(_calls.c.created_at, _calls.c.id).limit(limit)
    stored = [cast(StoredCall, dict(row._mapping)) for row in db.connection().execute(rows)]
    return [{**call, "request": _request(db, blobs, call)} for call in stored]


def _trouble(db: Db, session_id: str) -> TroubleShown | None:
    found = select(_sessions.c.trouble).where(_sessions.c.id == session_id)
    return cast(TroubleShown | None, db.connection().execute(found).scalar())


def _by_run(db: Db, place: Table, run_ids: list[str], fields: type[Part]) -> dict[str, list[Part]]:
    rows = (
        select(*(place.c[name] for name in fields.__annotations__))
        .where(place.c.run_id.in_(run_ids))
        .order_by(place.c.id)
        .limit(ROWS_MAX)
    )
    found: dict[str, list[Part]] = {}
    for row in db.connection().execute(rows):
        found.setdefault(row.run_id, []).append(cast(Part, dict(row._mapping)))
    return found


def _request(db: Db, blobs: BlobStore, call: StoredCall) -> dict[str, Any] | None:
    """The descriptor with its ranges written out; None for a call that failed before it had one."""
    if call["request_ref"] is None:
        return None
    try:
        request: dict[str, Any] = blobs.read_json(call["request_ref"])
    except (BlobMissing, ValueError):
        return None
    if not isinstance(request, dict):  # an import may bring anything under this name
        return None
    named = request.get("message_ids", [])
    seen = {level.session_id for level in levels(db, call["session_id"])}
    if named and isinstance(named[0], list):  # older builds stored ids, not ranges
        request["message_ids"] = requests.ids(db, named, seen)
    return request
