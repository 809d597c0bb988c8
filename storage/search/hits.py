"""A hit as it is shown: H-033's fields, with what was said just before and after."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Row, exists, select

from storage.engine import Db
from storage.rows import table
from storage.search.index import Hit
from storage.search.projection import message_text, transcript_text
from storage.search.query import Leaf
from storage.search.scope import TERMINAL_ROLE, TRANSCRIPTS
from storage.search.snippets import snippet
from storage.tables import Message, SessionRow, Supersession
from storage.tables_history import PtyTranscript

CONTEXT_CHARS = 200
_messages, _sessions = table(Message), table(SessionRow)
_terminals, _supersessions = table(PtyTranscript), table(Supersession)


def show(db: Db, hits: list[Hit], leaves: list[Leaf], *, substrings: bool) -> list[dict[str, Any]]:
    """The hits in their order; one whose row has gone meanwhile is left out."""
    shown = []
    for hit in hits:
        item = _message_item(db, hit) if hit.document > 0 else _terminal_item(db, hit)
        if item is not None:
            text = item.pop("_text")
            item["snippet"] = snippet(text, leaves, substrings=substrings)
            shown.append(item)
    return shown


def _message_item(db: Db, hit: Hit) -> dict[str, Any] | None:
    superseded = exists(
        select(1).where(
            _supersessions.c.session_id == _messages.c.session_id,
            _supersessions.c.message_id == _messages.c.id,
            _supersessions.c.undone_change.is_(None),
        )
    )
    wanted = (
        select(_messages, superseded.label("superseded"), *_session_columns())
        .join_from(_messages, _sessions, _sessions.c.id == _messages.c.session_id)
        .where(_messages.c.number == hit.document)
    )
    row = db.connection().execute(wanted).first()
    if row is None:
        return None
    return {
        "id": row.id,
        "session_id": row.session_id,
        "run_id": row.run_id,
        "seq": row.seq,
        "role": row.role,
        "agent_path": row.agent_path,
        "timestamp": row.created_at,
        "snippet": "",
        "context": _context(db, row.session_id, row.seq),
        "model": row.model or row.session_model,
        "superseded": row.superseded,
        "score": hit.score,
        **_session_fields(row),
        "_text": message_text(row.role, row.content, row.tool_name, row.tool_calls),
    }


def _terminal_item(db: Db, hit: Hit) -> dict[str, Any] | None:
    wanted = (
        select(_terminals, *_session_columns())
        .join_from(TRANSCRIPTS, _terminals, _terminals.c.id == TRANSCRIPTS.c.transcript_id)
        .join(_sessions, _sessions.c.id == _terminals.c.session_id)
        .where(TRANSCRIPTS.c.number == -hit.document)
    )
    row = db.connection().execute(wanted).first()
    if row is None:
        return None
    return {
        "id": row.pty_id,
        "session_id": row.session_id,
        "run_id": row.run_id,
        "seq": None,
        "role": TERMINAL_ROLE,
        "agent_path": "primary",
        "timestamp": row.created_at,
        "snippet": "",
        "context": [],
        "model": None,
        "superseded": False,
        "score": hit.score,
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


def _context(db: Db, session_id: str, seq: int) -> list[dict[str, Any]]:
    """One message before and one after, shortened."""
    mine = select(_messages.c.id, _messages.c.role, _messages.c.content, _messages.c.seq).where(
        _messages.c.session_id == session_id
    )
    before = mine.where(_messages.c.seq < seq).order_by(_messages.c.seq.desc()).limit(1)
    after = mine.where(_messages.c.seq > seq).order_by(_messages.c.seq).limit(1)
    context = []
    for position, wanted in (("before", before), ("after", after)):
        row = db.connection().execute(wanted).first()
        if row is not None:
            text = row.content[:CONTEXT_CHARS]
            context.append({"position": position, "id": row.id, "role": row.role, "content": text})
    return context
