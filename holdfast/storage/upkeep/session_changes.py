"""Changes of a session that are no state transition: title, model, mode, pin, archive, binding."""

from __future__ import annotations

from typing import Any

from holdfast.domain.clock import now_ms
from holdfast.domain.errors import Conflict
from holdfast.domain.events import SessionArchived
from holdfast.domain.lifecycle import State
from holdfast.storage.database.engine import Db
from holdfast.storage.database.rows import change
from holdfast.storage.database.tables import SessionRow
from holdfast.storage.log import events
from holdfast.storage.sessions import sessions, titles

WORKING = frozenset({State.RUNNING, State.QUEUED, State.PAUSED})


def edit(db: Db, session_id: str, fields: dict[str, Any]) -> SessionRow:
    """Set title, model_override, mode or pinned; None clears."""
    session = sessions.lock(db, session_id)
    values = dict(fields)
    if "title" in values:
        titles.set_title(db, session_id, values.pop("title"))
    if values:
        change(db, SessionRow, session.id, **values, updated_at=now_ms())
    return sessions.get(db, session_id)


def archive(
    db: Db, session_id: str, *, archived: bool, user_id: str, reason: str = "operator"
) -> SessionRow:
    """Hide a session from lists, or show it again; one at work stays where it is."""
    session = sessions.lock(db, session_id)
    if archived and State(session.state) in WORKING:
        raise Conflict(f"cannot archive while {session.state}", {"state": session.state})
    if session.archived is not archived:
        change(db, SessionRow, session_id, archived=archived, updated_at=now_ms())
        told = SessionArchived(
            session_id=session_id, user_id=user_id, archived=archived, reason=reason
        )
        events.append(db, session_id, told, row=("session", session_id))
    return sessions.get(db, session_id)
