"""Runs as the wire shows them: the record of K-039 with its messages, calls and subagents."""

from __future__ import annotations

from typing import Any

from sqlalchemy import select

from storage import messages
from storage.engine import Db
from storage.lineage_levels import levels, superseded
from storage.message_views import message_json
from storage.rows import table
from storage.tables import Run, SubagentInvocation, ToolCallRow

ROWS_PER_RUN_MAX = 2000
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
    return views(db, run.session_id, [run], with_calls=True)[0]


def views(
    db: Db, session_id: str, runs: list[Run], *, with_calls: bool = False
) -> list[dict[str, Any]]:
    """Several runs of one session; tool calls and subagents come with a single run only."""
    ids = {key for run in runs for key in (run.operator_message, run.primary_response) if key}
    causes = superseded(db, levels(db, session_id)) if ids else {}
    found = {
        message.id: message_json(message, causes.get(message.id, []))
        for message in messages.by_ids(db, ids)
    }
    return [
        {
            **{name: getattr(run, name) for name in _SHOWN},
            "operator_message": found.get(run.operator_message or ""),
            "primary_response": found.get(run.primary_response or ""),
            "tool_calls": _rows(db, _tool_calls, run.id, _TOOL_CALL) if with_calls else [],
            "subagent_invocations": (
                _rows(db, _invocations, run.id, _INVOCATION) if with_calls else []
            ),
        }
        for run in runs
    ]


def _rows(db: Db, place: Any, run_id: str, names: tuple[str, ...]) -> list[dict[str, Any]]:
    rows = (
        select(*(place.c[name] for name in names))
        .where(place.c.run_id == run_id)
        .order_by(place.c.id)
        .limit(ROWS_PER_RUN_MAX)
    )
    return [dict(row._mapping) for row in db.connection().execute(rows)]
