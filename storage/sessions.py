"""Session rows: made once, moved only through the lifecycle table."""

from __future__ import annotations

from typing import Any

from sqlalchemy import func, select, update

from domain.clock import now_ms
from domain.errors import NotFound
from domain.events import RunningCount, SessionCreated, SessionState
from domain.lifecycle import Action, State, next_state
from storage import events
from storage.engine import Db
from storage.rows import insert_once, table
from storage.tables import Operator, Project, SessionRow

_sessions, _projects, _operators = table(SessionRow), table(Project), table(Operator)
OPERATOR_LIMIT = 16


def create(db: Db, row: SessionRow) -> SessionRow:
    """Store a new idle session and say so; the same id twice is stored once."""
    values = row.model_dump()
    values["created_at"] = values["updated_at"] = values["last_active"] = now_ms()
    if insert_once(db, SessionRow, values):
        created = SessionCreated(
            session_id=row.id,
            project_id=row.project_id,
            user_id=row.created_by,
            forked_from=row.forked_from,
        )
        events.append(db, row.id, created, row=("session", row.id))
    return get(db, row.id)


def find(db: Db, session_id: str) -> SessionRow | None:
    """The session, or None."""
    row = db.connection().execute(select(_sessions).where(_sessions.c.id == session_id)).first()
    return None if row is None else SessionRow(**row._mapping)


def get(db: Db, session_id: str) -> SessionRow:
    """The session, or NotFound."""
    row = find(db, session_id)
    if row is None:
        raise NotFound("Session not found.")
    return row


def lock(db: Db, session_id: str) -> SessionRow:
    """The session, held against other writers until this transaction ends."""
    held = select(_sessions).where(_sessions.c.id == session_id).with_for_update()
    row = db.connection().execute(held).first()
    if row is None:
        raise NotFound("Session not found.")
    return SessionRow(**row._mapping)


def move(
    db: Db,
    session_id: str,
    action: Action,
    trigger: str,
    *,
    run_id: str | None = None,
    queued_reason: str | None = None,
    **columns: Any,
) -> SessionRow:
    """Move the session along the table, with `columns` changed in the same statement."""
    session = lock(db, session_id)
    before = State(session.state)
    after = next_state(before, action)
    changed = {"state": after.value, "version": session.version + 1, "updated_at": now_ms()}
    db.connection().execute(
        update(_sessions).where(_sessions.c.id == session_id).values({**changed, **columns})
    )
    moved = SessionState(
        session_id=session_id,
        from_state=before.value,
        to_state=after.value,
        trigger=trigger,
        queued=after is State.QUEUED,
        reason=queued_reason,
    )
    if State.RUNNING in (before, after) and before is not after:
        count = running_count(db, session.project_id, session.created_by)
        events.append(db, session_id, moved, count, run_id=run_id, row=("session", session_id))
    else:
        events.append(db, session_id, moved, run_id=run_id, row=("session", session_id))
    return get(db, session_id)


def running_count(db: Db, project_id: str, operator_id: str) -> RunningCount:
    """How many run now in the project and for the operator."""
    in_project, limit = project_slots(db, project_id)
    for_operator, _ = operator_slots(db, operator_id)
    return RunningCount(
        project_id=project_id, running=in_project, limit=limit, operator_running=for_operator
    )


def project_slots(db: Db, project_id: str) -> tuple[int, int]:
    """Running sessions of a project, and its limit."""
    limit = db.connection().execute(
        select(_projects.c.running_limit).where(_projects.c.id == project_id)
    )
    return _running(db, _sessions.c.project_id == project_id), int(limit.scalar() or 0)


def operator_slots(db: Db, operator_id: str) -> tuple[int, int]:
    """Running sessions of an operator, and the limit."""
    limit = db.connection().execute(
        select(_operators.c.running_limit).where(_operators.c.id == operator_id)
    )
    return _running(db, _sessions.c.created_by == operator_id), int(
        limit.scalar() or OPERATOR_LIMIT
    )


def _running(db: Db, whose: Any) -> int:
    count = select(func.count()).where(_sessions.c.state == State.RUNNING.value, whose)
    return int(db.connection().execute(count).scalar_one())
