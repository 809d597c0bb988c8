"""The audit log over all of an operator's sessions."""

from __future__ import annotations

from typing import Any

from sqlalchemy import select, tuple_

from holdfast.storage.database.engine import Db
from holdfast.storage.database.rows import table
from holdfast.storage.database.tables import SessionRow
from holdfast.storage.database.tables_history import EventRow

_events, _sessions = table(EventRow), table(SessionRow)


def audit(
    db: Db,
    operator_id: str,
    *,
    limit: int,
    session_id: str | None = None,
    kind: str | None = None,
    since: int | None = None,
    until: int | None = None,
    before: tuple[int, str] | None = None,
) -> list[EventRow]:
    """The operator's events, newest first; `kind` may end in `*`, `before` ends the last page."""
    conditions: list[Any] = [_sessions.c.created_by == operator_id, _sessions.c.purged.is_(False)]
    if session_id is not None:
        conditions.append(_events.c.session_id == session_id)
    if kind is not None and kind.endswith("*"):
        conditions.append(_events.c.kind.startswith(kind.rstrip("*"), autoescape=True))
    elif kind is not None:
        conditions.append(_events.c.kind == kind)
    if since is not None:
        conditions.append(_events.c.at >= since)
    if until is not None:
        conditions.append(_events.c.at <= until)
    if before is not None:
        conditions.append(tuple_(_events.c.at, _events.c.id) < before)
    rows = (
        select(_events)
        .join_from(_events, _sessions, _sessions.c.id == _events.c.session_id)
        .where(*conditions)
        .order_by(_events.c.at.desc(), _events.c.id.desc())
        .limit(limit)
    )
    return [EventRow(**row._mapping) for row in db.connection().execute(rows)]
