"""The timeline of a session: what ran when, inside of what, and what it took."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NotRequired

from sqlalchemy import Row, select
from typing_extensions import TypedDict

from holdfast.storage.database.engine import Db
from holdfast.storage.database.rows import table
from holdfast.storage.database.tables import Call, Message, Run, SubagentInvocation, ToolCallRow
from holdfast.storage.database.tables_approvals import Approval
from holdfast.storage.database.tables_history import Checkpoint, Compaction
from holdfast.storage.moves import checkpoints

SPANS_OF_A_KIND_MAX = 5_000
LABEL_CHARS_MAX = 120
# What a tool call is recognised by, in this order.
TELLING = ("command", "path", "pattern", "query", "url", "task", "prompt", "reason", "title")
_runs, _messages, _calls, _tools = table(Run), table(Message), table(Call), table(ToolCallRow)
_invocations, _compactions = table(SubagentInvocation), table(Compaction)
_checkpoints, _approvals = table(Checkpoint), table(Approval)


class TokensShown(TypedDict):
    """Tokens that went in and out."""

    input: int
    output: int


class SpanShown(TypedDict):
    """One thing that took time; `parent` is the span that it belongs to."""

    id: str
    parent: str | None
    kind: str
    label: str
    start: int
    end: int | None
    state: str
    run_id: str | None
    agent_path: str | None
    message_id: str | None
    tokens: NotRequired[TokensShown]
    cost: NotRequired[float | None]


def spans(db: Db, session_id: str, runs: list[Run]) -> list[SpanShown]:
    """Everything of these runs of the session, and the pauses between them, by begin."""
    if not runs:
        return []
    ids = [run.id for run in runs]
    invocations = _rows(db, select(_invocations).where(_invocations.c.run_id.in_(ids)))
    found = [
        *_run_spans(db, runs),
        *_subagent_spans(invocations),
        *_model_spans(db, ids, invocations),
        *_tool_spans(db, ids, invocations),
        *_approval_spans(db, ids),
        *_compaction_spans(db, session_id, runs),
        *_pause_spans(db, session_id, runs),
    ]
    return sorted(found, key=lambda span: (span["start"], span["id"]))


def _run_spans(db: Db, runs: list[Run]) -> Iterator[SpanShown]:
    asked = {run.operator_message for run in runs} - {None}
    texts = select(_messages.c.id, _messages.c.content).where(_messages.c.id.in_(asked))
    labels = {row.id: row.content for row in db.connection().execute(texts)}
    for run in runs:
        yield {
            **_span(run.id, None, "run", run.created_at, run.completed_at, run.state),
            "label": _short(labels.get(run.operator_message or "", "")),
            "run_id": run.id,
            "message_id": run.operator_message,
            "tokens": {"input": run.tokens_in, "output": run.tokens_out},
            "cost": run.cost_usd,
        }


def _subagent_spans(invocations: list[Row[Any]]) -> Iterator[SpanShown]:
    for row in invocations:
        above = row.agent_path.rpartition(".subagents.")[0]
        parent = _invocation_at(invocations, row.run_id, above, row.spawned_at)
        yield {
            **_span(row.id, parent, "subagent", row.spawned_at, row.exited_at, row.state),
            "label": row.subagent_name,
            "run_id": row.run_id,
            "agent_path": row.agent_path,
        }


def _model_spans(db: Db, ids: list[str], invocations: list[Row[Any]]) -> Iterator[SpanShown]:
    for row in _rows(db, select(_calls).where(_calls.c.run_id.in_(ids))):
        parent = _invocation_at(invocations, row.run_id, row.agent_path, row.created_at)
        yield {
            **_span(row.id, parent, "model", row.created_at, row.completed_at, row.status),
            "label": row.model or "",
            "run_id": row.run_id,
            "agent_path": row.agent_path,
            "message_id": row.message_id,
            "tokens": {"input": row.input_tokens, "output": row.output_tokens},
            "cost": row.cost_usd,
        }


def _tool_spans(db: Db, ids: list[str], invocations: list[Row[Any]]) -> Iterator[SpanShown]:
    for row in _rows(db, select(_tools).where(_tools.c.run_id.in_(ids))):
        parent = _invocation_at(invocations, row.run_id, row.caller, row.created_at)
        yield {
            **_span(row.id, parent, "tool", row.created_at, row.completed_at, row.state),
            "label": _short(f"{row.tool_name} {_telling(row.input)}"),
            "run_id": row.run_id,
            "agent_path": row.caller,
            "message_id": row.message_id,
        }


def _approval_spans(db: Db, ids: list[str]) -> Iterator[SpanShown]:
    """How long calls waited for an operator's word; each belongs to its call."""
    for row in _rows(db, select(_approvals).where(_approvals.c.run_id.in_(ids))):
        span = _span(row.id, row.tool_call_id, "approval", row.asked_at, row.decided_at, row.state)
        yield {
            **span,
            "label": _short(row.title),
            "run_id": row.run_id,
            "agent_path": row.agent_path,
        }


def _compaction_spans(db: Db, session_id: str, runs: list[Run]) -> Iterator[SpanShown]:
    mine = select(_compactions).where(_compactions.c.session_id == session_id)
    since = min(run.created_at for run in runs)
    for row in _rows(db, mine.where(_compactions.c.created_at >= since)):
        yield {
            **_span(row.id, row.run_id, "compaction", row.created_at, row.finished_at, row.state),
            "label": f"{row.strategy}: {row.trigger}",
            "run_id": row.run_id,
            "agent_path": row.agent_path,
            "message_id": row.summary_message_id,
        }


def _pause_spans(db: Db, session_id: str, runs: list[Run]) -> Iterator[SpanShown]:
    since = min(run.created_at for run in runs)
    pauses = select(_checkpoints).where(
        _checkpoints.c.session_id == session_id,
        _checkpoints.c.created_by != checkpoints.AT_MESSAGE,
        _checkpoints.c.created_at >= since,
    )
    for row in _rows(db, pauses):
        state = "resumed" if row.resumed_at else "rolled_back" if row.rolled_back else "paused"
        yield {
            **_span(row.id, row.run_id, "pause", row.created_at, row.resumed_at, state),
            "label": _short(row.reason or row.created_by),
            "run_id": row.run_id,
        }


def _span(
    span_id: str, parent: str | None, kind: str, start: int, end: int | None, state: str
) -> SpanShown:
    return {
        "id": span_id,
        "parent": parent,
        "kind": kind,
        "label": "",
        "start": start,
        "end": end,
        "state": state,
        "run_id": None,
        "agent_path": None,
        "message_id": None,
    }


def _invocation_at(
    invocations: list[Row[Any]], run_id: str, agent_path: str, at: int
) -> str | None:
    """The subagent that worked under this path at a time, or the run itself."""
    for row in invocations:
        same = (row.run_id, row.agent_path) == (run_id, agent_path)
        if same and row.spawned_at <= at and (row.exited_at is None or at <= row.exited_at):
            return str(row.id)
    return run_id


def _telling(given: Any) -> str:
    """What says most about a call's arguments."""
    if not isinstance(given, dict):
        return ""
    return next((str(given[name]) for name in TELLING if given.get(name)), "")


def _short(text: str) -> str:
    words = " ".join(text[: 4 * LABEL_CHARS_MAX].split())
    return words if len(words) <= LABEL_CHARS_MAX else f"{words[: LABEL_CHARS_MAX - 1]}…"


def _rows(db: Db, wanted: Any) -> list[Row[Any]]:
    return list(db.connection().execute(wanted.limit(SPANS_OF_A_KIND_MAX)))
