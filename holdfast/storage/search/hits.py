"""A hit as it is shown: H-033's fields, with what was said just before and after."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Row, Select, bindparam, exists, func, select

from holdfast.storage.database.engine import Db
from holdfast.storage.database.rows import table
from holdfast.storage.database.tables import Message, SessionRow, Supersession
from holdfast.storage.database.tables_history import PtyTranscript
from holdfast.storage.search.index import Hit
from holdfast.storage.search.projection import message_text, transcript_text
from holdfast.storage.search.query import Leaf
from holdfast.storage.search.scope import TERMINAL_ROLE, TRANSCRIPTS
from holdfast.storage.search.snippets import snippet

CONTEXT_CHARS = 200
_messages, _sessions = table(Message), table(SessionRow)
_terminals, _supersessions = table(PtyTranscript), table(Supersession)


def show(db: Db, hits: list[Hit], leaves: list[Leaf], *, substrings: bool) -> list[dict[str, Any]]:
    """The hits in their order; one whose row has gone meanwhile is left out."""
    items = _message_items(db, [hit.document for hit in hits if hit.document > 0])
    items |= _terminal_items(db, [hit.document for hit in hits if hit.document < 0])
    shown = []
    for hit in hits:
        item = items.get(hit.document)
        if item is not None:
            text = item.pop("_text")
            marked = snippet(text, leaves, substrings=substrings)
            shown.append({**item, "snippet": marked, "score": hit.score})
    return shown


def _message_items(db: Db, numbers: list[int]) -> dict[int, dict[str, Any]]:
    if not numbers:
        return {}
    rows = db.connection().execute(_WANTED, {"numbers": numbers}).all()
    nearby = _neighbours(db, [number for row in rows for number in (row.before, row.after)])
    return {row.number: _message_item(row, nearby) for row in rows}


def _message_item(row: Row[Any], nearby: dict[int, dict[str, Any]]) -> dict[str, Any]:
    return {
        "id": row.id,
        "session_id": row.session_id,
        "run_id": row.run_id,
        "seq": row.seq,
        "role": row.role,
        "agent_path": row.agent_path,
        "timestamp": row.created_at,
        "context": [
            {"position": position, **nearby[number]}
            for position, number in (("before", row.before), ("after", row.after))
            if number in nearby
        ],
        "model": row.model or row.session_model,
        "superseded": bool(row.superseded),
        **_session_fields(row),
        "_text": message_text(row.role, row.content, row.tool_name, row.tool_calls),
    }


def _terminal_items(db: Db, documents: list[int]) -> dict[int, dict[str, Any]]:
    if not documents:
        return {}
    wanted = (
        select(TRANSCRIPTS.c.number, _terminals, *_session_columns())
        .join_from(TRANSCRIPTS, _terminals, _terminals.c.id == TRANSCRIPTS.c.transcript_id)
        .join(_sessions, _sessions.c.id == _terminals.c.session_id)
        .where(TRANSCRIPTS.c.number.in_([-document for document in documents]))
    )
    return {-row.number: _terminal_item(row) for row in db.connection().execute(wanted)}


def _terminal_item(row: Row[Any]) -> dict[str, Any]:
    return {
        "id": row.pty_id,
        "session_id": row.session_id,
        "run_id": row.run_id,
        "seq": None,
        "role": TERMINAL_ROLE,
        "agent_path": "primary",
        "timestamp": row.created_at,
        "context": [],
        "model": None,
        "superseded": False,
        **_session_fields(row),
        "_text": transcript_text(row.text),
    }


def _session_columns() -> list[Any]:
    return [
        _sessions.c.source,
        _sessions.c.title,
        _sessions.c.project_id,
        _sessions.c.model_override.label("session_model"),
        _sessions.c.created_at.label("session_started"),
    ]


def _session_fields(row: Row[Any]) -> dict[str, Any]:
    return {
        "source": row.source,
        "title": row.title,
        "project_id": row.project_id,
        "session_started": row.session_started,
    }


def _neighbour(*, newer: bool) -> Any:
    """The number of the message next to this one in its session."""
    other = _messages.alias("newer" if newer else "older")
    beyond = other.c.seq > _messages.c.seq if newer else other.c.seq < _messages.c.seq
    order = other.c.seq if newer else other.c.seq.desc()
    return (
        select(other.c.number)
        .where(other.c.session_id == _messages.c.session_id, beyond)
        .order_by(order)
        .limit(1)
        .scalar_subquery()
        .correlate(_messages)
        .label("after" if newer else "before")
    )


def _neighbours(db: Db, numbers: list[int | None]) -> dict[int, dict[str, Any]]:
    """The start of each of these messages."""
    start = func.substr(_messages.c.content, 1, CONTEXT_CHARS).label("start")
    wanted = select(_messages.c.number, _messages.c.id, _messages.c.role, start).where(
        _messages.c.number.in_([number for number in numbers if number is not None])
    )
    return {
        row.number: {"id": row.id, "role": row.role, "content": row.start}
        for row in db.connection().execute(wanted)
    }


def _wanted() -> Select[Any]:
    superseded = exists(
        select(1).where(
            _supersessions.c.session_id == _messages.c.session_id,
            _supersessions.c.message_id == _messages.c.id,
            _supersessions.c.undone_change.is_(None),
        )
    )
    before, after = _neighbour(newer=False), _neighbour(newer=True)
    return (
        select(_messages, superseded.label("superseded"), before, after, *_session_columns())
        .join_from(_messages, _sessions, _sessions.c.id == _messages.c.session_id)
        .where(_messages.c.number.in_(bindparam("numbers", expanding=True)))
    )


# Built once: putting it together takes longer than asking.
_WANTED = _wanted()
