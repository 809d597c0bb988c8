"""Runs as the wire shows them: the record of K-039 with its messages, calls and subagents."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Table, select

from holdfast.storage.database.engine import Db
from holdfast.storage.database.rows import table
from holdfast.storage.database.tables import Run, SubagentInvocation, ToolCallRow
from holdfast.storage.sessions import messages
from holdfast.storage.sessions.lineage_levels import levels, superseded
from holdfast.storage.sessions.message_views import message_json

ROWS_MAX = 5000
_tool_calls, _invocations = table(ToolCallRow), table(SubagentInvocation)
_SHOWN = (
    "id",
    "session_id",
    "state",
    "created_at",
    "started_at",
    "completed_at",
    "duration_ms",
    "tokens_in",
    "tokens_out",
    "cost_usd",
    "steps",
    "error",
    "finish_reason",
)
_TOOL_CALL = (
    "id",
    "run_id",
    "caller",
    "tool_name",
    "input",
    "output",
    "state",
    "created_at",
    "completed_at",
)
_INVOCATION = (
    "id",
    "run_id",
    "subagent_name",
    "agent_path",
    "cage_id",
    "state",
    "spawned_at",
    "exited_at",
    "exit_code",
    "error",
)


def view(db: Db, run: Run) -> dict[str, Any]:
    """One run with everything that belongs to it."""
    return views(db, run.session_id, [run])[0]


def views(db: Db, session_id: str, runs: list[Run]) -> list[dict[str, Any]]:
    """Several runs of one session, with a handful of queries in all."""
    ids = {key for run in runs for key in (run.operator_message, run.primary_response) if key}
    causes = superseded(db, levels(db, session_id)) if ids else {}
    found = {
        message.id: message_json(message, causes.get(message.id, []))
        for message in messages.by_ids(db, ids)
    }
    run_ids = [run.id for run in runs]
    calls = _by_run(db, _tool_calls, run_ids, _TOOL_CALL)
    invocations = _by_run(db, _invocations, run_ids, _INVOCATION)
    return [
        {
            **{name: getattr(run, name) for name in _SHOWN},
            "operator_message": found.get(run.operator_message or ""),
            "primary_response": found.get(run.primary_response or ""),
            "tool_calls": calls.get(run.id, []),
            "subagent_invocations": invocations.get(run.id, []),
        }
        for run in runs
    ]


def _by_run(
    db: Db, place: Table, run_ids: list[str], names: tuple[str, ...]
) -> dict[str, list[dict[str, Any]]]:
    rows = (
        select(*(place.c[name] for name in names))
        .where(place.c.run_id.in_(run_ids))
        .order_by(place.c.id)
        .limit(ROWS_MAX)
    )
    found: dict[str, list[dict[str, Any]]] = {}
    for row in db.connection().execute(rows):
        found.setdefault(row.run_id, []).append(dict(row._mapping))
    return found
