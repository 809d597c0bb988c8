"""Runs: made at admission, moved once to an end."""

from __future__ import annotations

from typing import Any

from sqlalchemy import bindparam, func, select, tuple_, update

from holdfast.domain.clock import now_ms
from holdfast.domain.errors import NotFound
from holdfast.domain.events import RunCancelled, RunCompleted, RunCreated
from holdfast.domain.lifecycle import Action, State
from holdfast.storage.approvals import approvals
from holdfast.storage.database.engine import Db
from holdfast.storage.database.rows import (
    KEY,
    change,
    find_row,
    fresh,
    insert_once,
    made,
    step_counter,
    table,
)
from holdfast.storage.database.tables import Message, Run, SessionRow
from holdfast.storage.log import events
from holdfast.storage.sessions import sessions

_runs, _messages, _sessions = table(Run), table(Message), table(SessionRow)
ACTIVE = ("pending", "running")
PREVIEW_CHARS = 100
_RUN_OF_MESSAGE = select(_messages.c.run_id).where(_messages.c.id == bindparam(KEY))
# A compaction by hand: no message began it, and it is not its session's active run.
_BY_HAND = (
    _runs.c.state == "running",
    _runs.c.operator_message.is_(None),
    _runs.c.id != func.coalesce(_sessions.c.active_run, ""),
)
_LEFT_OPEN = (
    select(_runs.c.id)
    .join_from(_runs, _sessions, _sessions.c.id == _runs.c.session_id)
    .where(_runs.c.session_id == bindparam(KEY), *_BY_HAND)
)


def create(
    db: Db,
    *,
    run_id: str,
    session_id: str,
    message_id: str | None,
    user_id: str,
    state: str,
    preview: str,
) -> None:
    """Store a pending or running run and say so."""
    at = now_ms()
    values = fresh(
        Run,
        id=run_id,
        session_id=session_id,
        state=state,
        created_at=at,
        started_at=at if state == "running" else None,
        operator_message=message_id,
        user_id=user_id,
    )
    if insert_once(db, Run, values.model_dump()):
        step_counter(db, SessionRow, session_id, "run_count")
        created = RunCreated(
            run_id=run_id, session_id=session_id, message_preview=preview[:PREVIEW_CHARS]
        )
        events.append(db, session_id, created, run_id=run_id, row=("run", run_id))


def find(db: Db, run_id: str) -> Run | None:
    """The run, or None."""
    return find_row(db, Run, run_id)


def of_message(db: Db, message_id: str) -> Run | None:
    """The run that a message of the operator began, or None."""
    run_id = db.connection().execute(_RUN_OF_MESSAGE, {KEY: message_id}).scalar()
    return find(db, run_id) if run_id else None


def get(db: Db, run_id: str) -> Run:
    """The run, or NotFound."""
    run = find(db, run_id)
    if run is None:
        raise NotFound("Run not found.")
    return run


def of_session(
    db: Db, session_id: str, *, limit: int, before: tuple[int, str] | None = None
) -> list[Run]:
    """The session's runs, newest first, older than the one with this time and id."""
    rows = select(_runs).where(_runs.c.session_id == session_id)
    if before is not None:
        rows = rows.where(tuple_(_runs.c.created_at, _runs.c.id) < before)
    rows = rows.order_by(_runs.c.created_at.desc(), _runs.c.id.desc()).limit(limit)
    return [made(Run, row) for row in db.connection().execute(rows)]


def left_open(db: Db, session_id: str) -> list[str]:
    """The session's compactions by hand that have not ended; lost ones when no workflow lives."""
    return list(db.connection().execute(_LEFT_OPEN, {KEY: session_id}).scalars())


def compacting_sessions(db: Db, *, limit: int) -> list[SessionRow]:
    """Up to `limit` sessions with a compaction by hand that has not ended."""
    compacting = select(_runs.c.session_id).where(_runs.c.session_id == _sessions.c.id, *_BY_HAND)
    rows = select(_sessions).where(compacting.exists()).limit(limit)
    return [made(SessionRow, row) for row in db.connection().execute(rows)]


def start(db: Db, run_id: str) -> None:
    """A pending run begins."""
    db.connection().execute(
        update(_runs)
        .where(_runs.c.id == run_id, _runs.c.state == "pending")
        .values(state="running", started_at=now_ms())
    )


def answer(db: Db, run_id: str, message_id: str) -> None:
    """Note which message is the run's response."""
    change(db, Run, run_id, primary_response=message_id)


def set_tree(db: Db, run_id: str, tree: str) -> None:
    """Note the files as they were before the run; the first snapshot counts."""
    db.connection().execute(
        update(_runs)
        .where(_runs.c.id == run_id, _runs.c.tree_before.is_(None))
        .values(tree_before=tree)
    )


def tree_of(db: Db, session_id: str, *, last: bool) -> str | None:
    """The files before the session's first run that could change any, or before its last run.

    None when no such run was made, "" when they could not be saved.
    """
    mine = select(_runs.c.tree_before).where(_runs.c.session_id == session_id)
    if last:
        mine = mine.order_by(_runs.c.created_at.desc(), _runs.c.id.desc())
    else:
        changing = mine.where(_runs.c.tree_before.is_not(None))
        mine = changing.order_by(_runs.c.created_at, _runs.c.id)
    found: str | None = db.connection().execute(mine.limit(1)).scalar()
    return found


def close(
    db: Db,
    run_id: str,
    *,
    state: str,
    error: dict[str, Any] | None = None,
    finish_reason: str | None = None,
    user_id: str = "",
) -> bool:
    """End a run that is still active; False when it had ended before, so that one end wins."""
    return _close(
        db,
        get(db, run_id),
        state=state,
        error=error,
        finish_reason=finish_reason,
        user_id=user_id,
    )


def _close(
    db: Db,
    run: Run,
    *,
    state: str,
    error: dict[str, Any] | None = None,
    finish_reason: str | None = None,
    user_id: str = "",
) -> bool:
    if run.state not in ACTIVE:
        return False
    at, run_id = now_ms(), run.id
    duration = at - (run.started_at or run.created_at)
    change(
        db,
        Run,
        run_id,
        state=state,
        completed_at=at,
        duration_ms=duration,
        error=error,
        finish_reason=finish_reason,
    )
    approvals.withdraw(db, run_id)
    ended_run: dict[str, Any] = {"last_run_id": run_id} if run.operator_message else {}
    if run.operator_message and state == "failed":
        ended_run["failed_run_id"] = run_id
    change(db, SessionRow, run.session_id, trouble=None, **ended_run)
    tokens = {"input": run.tokens_in, "output": run.tokens_out}
    ended = [RunCompleted(run_id=run_id, state=state, duration_ms=duration, tokens=tokens)]
    if state == "cancelled":
        cancelled = RunCancelled(run_id=run_id, session_id=run.session_id, user_id=user_id)
        events.append(db, run.session_id, cancelled, run_id=run_id, row=("run", run_id))
    events.append(db, run.session_id, *ended, run_id=run_id, row=("run", run_id))
    return True


def finish(db: Db, run_id: str, *, trigger: str, **how: Any) -> bool:
    """Close the run and bring its session back to idle, in one step."""
    run = get(db, run_id)
    won = _close(db, run, **how)
    session = sessions.lock(db, run.session_id)
    way = {State.RUNNING: Action.FINISH, State.PAUSED: Action.SETTLE}.get(State(session.state))
    if session.active_run == run_id and way is not None:
        sessions.move(
            db,
            session.id,
            way,
            trigger,
            run_id=run_id,
            active_run=None,
            current_checkpoint=None,
        )
    return won
