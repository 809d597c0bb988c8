"""Session rows: made once, moved only through the lifecycle table."""

from __future__ import annotations

from typing import Any

from sqlalchemy import ColumnElement, Select, bindparam, func, select

from holdfast.domain.clock import now_ms
from holdfast.domain.errors import NotFound
from holdfast.domain.events import RunningCount, SessionCreated, SessionState
from holdfast.domain.lifecycle import Action, State, next_state
from holdfast.storage.database.engine import Db
from holdfast.storage.database.rows import KEY, change, find_row, insert_once, made, table
from holdfast.storage.database.tables import Operator, Project, SessionRow
from holdfast.storage.log import events
from holdfast.storage.projects import quotas
from holdfast.storage.sessions import attention

_sessions, _projects, _operators = table(SessionRow), table(Project), table(Operator)
OPERATOR_LIMIT = 16


def _running_where(whose: ColumnElement[str]) -> Select[Any]:
    running = _sessions.c.state == State.RUNNING.value
    holding = _sessions.c.without_slot.is_(False)
    return select(func.count()).where(running, holding, whose == bindparam(KEY))


_RUNNING_IN_PROJECT = _running_where(_sessions.c.project_id)
_RUNNING_FOR_OPERATOR = _running_where(_sessions.c.created_by)
_PROJECT_LIMIT = select(_projects.c.running_limit).where(_projects.c.id == bindparam(KEY))
_OPERATOR_LIMIT = select(_operators.c.running_limit).where(_operators.c.id == bindparam(KEY))


def create(db: Db, row: SessionRow) -> SessionRow:
    """Store a new idle session and say so; the same id twice is stored once."""
    if find(db, row.id) is None:
        quotas.require_room(db, row.created_by, "sessions")
    values = row.model_dump()
    values["created_at"] = values["updated_at"] = values["last_active"] = now_ms()
    values["cache_id"] = row.cache_id or row.id
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
    return find_row(db, SessionRow, session_id)


def get(db: Db, session_id: str) -> SessionRow:
    """The session, or NotFound."""
    row = find(db, session_id)
    if row is None:
        raise NotFound("Session not found.")
    return row


def in_state(db: Db, *, state: State, limit: int) -> list[SessionRow]:
    """Up to `limit` sessions in this state."""
    rows = select(_sessions).where(_sessions.c.state == state.value).limit(limit)
    return [made(SessionRow, row) for row in db.connection().execute(rows)]


def count_by_state(db: Db) -> dict[str, int]:
    """How many sessions are in each state."""
    rows = select(_sessions.c.state, func.count()).group_by(_sessions.c.state)
    return {state: int(count) for state, count in db.connection().execute(rows)}


def lock(db: Db, session_id: str) -> SessionRow:
    """The session, held against other writers until this transaction ends."""
    row = find_row(db, SessionRow, session_id, lock=True)
    if row is None:
        raise NotFound("Session not found.")
    return row


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
    """Move the session along the table, with `columns` changed in the same statement.

    The row that it answers is as it was before the move's own events.
    """
    session = lock(db, session_id)
    before = State(session.state)
    after = next_state(before, action)
    changed = {"state": after.value, "version": session.version + 1, "updated_at": now_ms()}
    if after not in (State.RUNNING, State.PAUSED):
        columns["without_slot"] = False  # it was a run's that is over
    change(db, SessionRow, session_id, **{**changed, **columns})
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
    for name, value in {**changed, **columns}.items():
        setattr(session, name, value)
    attention.refresh(db, session)
    return session


def running_count(db: Db, project_id: str, operator_id: str) -> RunningCount:
    """How many run now in the project and for the operator."""
    in_project, limit = project_slots(db, project_id)
    for_operator, _ = operator_slots(db, operator_id)
    return RunningCount(
        project_id=project_id, running=in_project, limit=limit, operator_running=for_operator
    )


def project_slots(db: Db, project_id: str) -> tuple[int, int]:
    """Running sessions of a project, and its limit."""
    running = _number(db, _RUNNING_IN_PROJECT, project_id)
    return running or 0, _number(db, _PROJECT_LIMIT, project_id) or 0


def operator_slots(db: Db, operator_id: str) -> tuple[int, int]:
    """Running sessions of an operator, and the limit."""
    running = _number(db, _RUNNING_FOR_OPERATOR, operator_id)
    return running or 0, _number(db, _OPERATOR_LIMIT, operator_id) or OPERATOR_LIMIT


def _number(db: Db, statement: Select[Any], key: str) -> int | None:
    found = db.connection().execute(statement, {KEY: key}).scalar()
    return None if found is None else int(found)
