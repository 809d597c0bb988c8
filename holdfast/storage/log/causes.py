"""Why something happened: an event, its row, and the events that caused it. Audit only (F-024)."""

from __future__ import annotations

from typing import Any

from sqlalchemy import select
from sqlmodel import SQLModel

from holdfast.domain.errors import NotFound
from holdfast.storage.database.engine import Db
from holdfast.storage.database.rows import table
from holdfast.storage.database.tables import (
    Call,
    Message,
    Run,
    SessionRow,
    SubagentInvocation,
    ToolCallRow,
)
from holdfast.storage.database.tables_history import (
    Checkpoint,
    Compaction,
    Derivation,
    EventRow,
    Head,
    PromptEdit,
    Pty,
)

CHAIN_MAX = 50
TEXT_CHARS = 500
_events = table(EventRow)
Cause = tuple[str, str]  # row kind and row id
# What an event's `row_kind` names.
_ROWS: dict[str, type[SQLModel]] = {
    "session": SessionRow,
    "message": Message,
    "run": Run,
    "call": Call,
    "tool_call": ToolCallRow,
    "subagent": SubagentInvocation,
    "subagent_invocation": SubagentInvocation,
    "checkpoint": Checkpoint,
    "compaction": Compaction,
    "head": Head,
    "prompt_edit": PromptEdit,
    "pty": Pty,
}
_SESSION_SHOWN = ("id", "title", "state", "source", "forked_from", "created_at", "created_by")


def event_json(event: EventRow) -> dict[str, Any]:
    """A raw event, as the event stream shows it (F-023)."""
    return {
        "id": event.id,
        "session_id": event.session_id,
        "seq": event.seq,
        "type": event.kind,
        "at": event.at,
        "run_id": event.run_id,
        "row_kind": event.row_kind,
        "row_id": event.row_id,
        "data": event.data,
        "hash": event.hash,
    }


def find_event(db: Db, session_id: str, name: str) -> EventRow:
    """The session's event by its id or its seq, or NotFound."""
    key = (
        _events.c.seq == int(name) if name.isdecimal() and len(name) < 12 else _events.c.id == name
    )
    row = db.connection().execute(select(_events).where(_events.c.session_id == session_id, key))
    found = row.first()
    if found is None:
        raise NotFound("Event not found.")
    return EventRow(**found._mapping)


def trace(db: Db, event: EventRow) -> dict[str, Any]:
    """The event with its summary, its row, what caused it, and the chain back to the beginning."""
    traced = traced_event(db, event)
    chain: list[dict[str, Any]] = []
    seen = {event.id}
    pending = list(traced["cause_event_ids"])
    while pending and len(chain) < CHAIN_MAX:
        event_id = pending.pop(0)
        if event_id not in seen:
            seen.add(event_id)
            cause = traced_event(db, _by_id(db, event_id))
            chain.append(cause)
            pending += cause["cause_event_ids"]
    return {**traced, "chain": chain}


def traced_event(db: Db, event: EventRow) -> dict[str, Any]:
    """The event with `summary`, `row`, `causes` and `cause_event_ids`."""
    row = _row(db, event)
    causes = _causes(db, event, row)
    found = [_caused_by(db, event, cause) for cause in causes]
    return {
        **event_json(event),
        "summary": _summary(event, row),
        "row": None if row is None else _row_json(row),
        "causes": [{"kind": kind, "id": key} for kind, key in causes],
        "cause_event_ids": list(dict.fromkeys(key for key in found if key is not None)),
    }


def _row(db: Db, event: EventRow) -> SQLModel | None:
    model = _ROWS.get(event.row_kind or "")
    if model is None or event.row_id is None:
        return None
    place = table(model)
    found = db.connection().execute(select(place).where(place.c.id == event.row_id)).first()
    if found is None:
        return None
    row = model(**found._mapping)
    # An imported event may name any row: only the same operator's is shown.
    whose = row.id if isinstance(row, SessionRow) else getattr(row, "session_id", None)
    return row if _same_operator(db, event.session_id, str(whose)) else None


def _same_operator(db: Db, session_id: str, other_id: str) -> bool:
    if session_id == other_id:
        return True
    sessions = table(SessionRow)
    owners = select(sessions.c.created_by).where(sessions.c.id.in_((session_id, other_id)))
    found = list(db.connection().execute(owners).scalars())
    return len(found) == 2 and found[0] == found[1]


def _causes(db: Db, event: EventRow, row: SQLModel | None) -> list[Cause]:
    if isinstance(row, Message):
        return _causes_of_message(db, row)
    if isinstance(row, Run) and event.kind == "run.created":
        return _some(("message", row.operator_message))
    if isinstance(row, Head):
        return _some(("checkpoint", row.checkpoint_id), ("run", row.run_id), ("head", row.basis))
    if isinstance(row, Call | SubagentInvocation | Pty):
        asked = getattr(row, "tool_call_id", None)
        return _some(("tool_call", asked), ("run", row.run_id))
    if isinstance(row, ToolCallRow):
        return _some(("message", row.message_id), ("run", row.run_id))
    if isinstance(row, Checkpoint):
        return _some(("compaction", row.compaction_id), ("run", row.run_id))
    if isinstance(row, PromptEdit):
        return _some(("checkpoint", row.checkpoint_id))
    if isinstance(row, Compaction):
        return _some(("checkpoint", row.checkpoint_id), ("run", row.run_id))
    if event.kind == "session.forked":
        return _causes_of_fork(db, event.session_id)
    return _some(("run", event.run_id))


def _causes_of_message(db: Db, message: Message) -> list[Cause]:
    """An answer comes from a call, a result from a tool call, the rest from its run."""
    calls, tools = table(Call), table(ToolCallRow)
    call = select(calls.c.id).where(
        calls.c.session_id == message.session_id, calls.c.message_id == message.id
    )
    tool = select(tools.c.id, tools.c.message_id).where(
        tools.c.session_id == message.session_id, tools.c.result_message_id == message.id
    )
    asked = db.connection().execute(tool.limit(1)).first()
    if asked is not None:
        return _some(("tool_call", asked.id), ("message", asked.message_id))
    if message.role in ("primary", "subagent"):
        made = db.connection().execute(call.limit(1)).scalar()
        return _some(("call", made), ("run", message.run_id))
    return []


def _causes_of_fork(db: Db, session_id: str) -> list[Cause]:
    edges = table(Derivation)
    edge = db.connection().execute(select(edges).where(edges.c.target_session == session_id))
    found = edge.first()
    if found is None:
        return []
    return _some(("head", found.source_head), ("session", found.source_session))


def _caused_by(db: Db, event: EventRow, cause: Cause) -> str | None:
    """The id of the first event about the cause, of this session or of the one it came from."""
    kind, key = cause
    about = select(_events.c.id, _events.c.session_id, _events.c.seq).where(
        _events.c.row_kind == kind, _events.c.row_id == key
    )
    mine = about.where(_events.c.session_id == event.session_id, _events.c.seq < event.seq)
    found = db.connection().execute(mine.order_by(_events.c.seq).limit(1)).first()
    if found is None and event.kind == "session.forked":
        source = str(event.data.get("source_session_id"))
        if not _same_operator(db, event.session_id, source):
            return None
        theirs = about.where(_events.c.session_id == source).order_by(_events.c.seq).limit(1)
        found = db.connection().execute(theirs).first()
    return None if found is None else str(found.id)


def _by_id(db: Db, event_id: str) -> EventRow:
    row = db.connection().execute(select(_events).where(_events.c.id == event_id)).one()
    return EventRow(**row._mapping)


def _some(*causes: tuple[str, str | None]) -> list[Cause]:
    return [(kind, key) for kind, key in causes if key is not None]


def _summary(event: EventRow, row: SQLModel | None) -> str:
    if isinstance(row, Message):
        return f"{row.role} said: {_cut(' '.join(row.content.split()), 80)}"
    told = [
        f"{key}={_cut(str(value), 60)}"
        for key, value in event.data.items()
        if value is not None and key != "session_id" and not isinstance(value, dict | list)
    ]
    return f"{event.kind} {' '.join(told)}".strip()


def _row_json(row: SQLModel) -> dict[str, Any]:
    if isinstance(row, SessionRow):
        return {name: getattr(row, name) for name in _SESSION_SHOWN}
    shown = row.model_dump()
    return {
        key: _cut(value, TEXT_CHARS) if isinstance(value, str) else value
        for key, value in shown.items()
    }


def _cut(text: str, limit: int) -> str:
    return text if len(text) <= limit else text[:limit] + "…"
