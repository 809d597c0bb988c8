"""Whether a message runs now or waits: counted inside the transaction that takes it."""

from __future__ import annotations

from dataclasses import dataclass
from zlib import crc32

from sqlalchemy import text

from holdfast.domain.errors import Conflict, NotFound
from holdfast.domain.events import SessionQueued, SessionQueuedDiscarded, SessionResumedFromQueue
from holdfast.domain.lifecycle import Action, State, next_state
from holdfast.storage.approvals import approvals
from holdfast.storage.database.engine import Db
from holdfast.storage.database.rows import change
from holdfast.storage.database.tables import Message, SessionRow, WaitingMessage
from holdfast.storage.log import events, frames
from holdfast.storage.sessions import inbox, messages, runs, sessions, supersessions, waiting
from holdfast.storage.sessions.message_views import message_json

QUEUED_REASON = "concurrency_limit"
RETRIED = ("failed", "cancelled")


@dataclass(frozen=True)
class Admitted:
    """Where the message went."""

    state: State
    run_id: str
    message_id: str


def admit(db: Db, session_id: str, *, message_id: str, run_id: str, user_id: str) -> Admitted:
    """Move a staged message into the session and create its run, running or pending."""
    session = sessions.lock(db, session_id)
    known = runs.of_message(db, message_id)
    if known is not None:
        return Admitted(State(session.state), known.id, message_id)
    next_state(State(session.state), Action.START)
    staged = inbox.find(db, message_id) or waiting.find(db, message_id)
    if staged is None:
        raise NotFound("The message was not staged, or was taken before.")
    if staged.model_override is not None:
        change(db, SessionRow, session_id, model_override=staged.model_override)
    full = full_because(db, session)
    state = "pending" if full else "running"
    message = messages.append(
        db, session_id, id=message_id, run_id=run_id, role="operator", content=staged.content
    )
    if isinstance(staged, WaitingMessage):
        waiting.take(db, staged)
    else:
        inbox.take(db, message_id)
    runs.create(
        db,
        run_id=run_id,
        session_id=session_id,
        message_id=message_id,
        user_id=user_id,
        state=state,
        preview=staged.content,
    )
    frames.append(db, session_id, ("message", {"message": message_json(message, [])}))
    return _begin(db, session_id, run_id, message_id, full)


def retry(db: Db, session_id: str, *, run_id: str, new_run_id: str, user_id: str) -> Admitted:
    """Run the last run's message again; what that run said no longer counts, its message does."""
    session = sessions.lock(db, session_id)
    again = runs.find(db, new_run_id)
    if again is not None:
        return Admitted(State(session.state), new_run_id, again.operator_message or "")
    next_state(State(session.state), Action.START)
    message = _to_retry(db, session, run_id)
    full = full_because(db, session)
    said = [one.id for one in messages.of_run(db, session_id, run_id) if one.role != "operator"]
    supersessions.supersede(db, session_id, said, "retry", f"run:{new_run_id}")
    runs.create(
        db,
        run_id=new_run_id,
        session_id=session_id,
        message_id=message.id,
        user_id=user_id,
        state="pending" if full else "running",
        preview=message.content,
    )
    return _begin(db, session_id, new_run_id, message.id, full, trigger="retry")


def _to_retry(db: Db, session: SessionRow, run_id: str) -> Message:
    run = runs.find(db, run_id)
    if run is None or run.session_id != session.id:
        raise NotFound("Run not found.")
    if session.last_run_id != run.id or run.state not in RETRIED:
        raise Conflict(
            "only the last run can be run again, if it failed or was cancelled",
            {"state": run.state, "last_run": session.last_run_id},
        )
    counts = {message.id: message for message in messages.history(db, session.id)}
    message = counts.get(run.operator_message or "")
    if message is None:
        raise Conflict("the message of this run no longer counts", {"state": run.state})
    return message


def _begin(
    db: Db,
    session_id: str,
    run_id: str,
    message_id: str,
    full: tuple[str, int, int] | None,
    *,
    trigger: str = "message",
) -> Admitted:
    if full:
        return _queue(db, session_id, run_id, message_id, full)
    moved = sessions.move(
        db,
        session_id,
        Action.START,
        trigger,
        run_id=run_id,
        active_run=run_id,
        failed_run_id=None,
    )
    return Admitted(State(moved.state), run_id, message_id)


def start_queued(db: Db, session_id: str, user_id: str, *, trigger: str = "resume") -> str:
    """Start the pending run of a queued session; 409 when there is no slot."""
    session = sessions.lock(db, session_id)
    next_state(State(session.state), Action.START)
    if session.state != State.QUEUED or session.active_run is None:
        raise Conflict("the session is not queued", {"state": session.state})
    require_slot(db, session)
    runs.start(db, session.active_run)
    sessions.move(db, session_id, Action.START, trigger, run_id=session.active_run)
    running, _ = sessions.project_slots(db, session.project_id)
    resumed = SessionResumedFromQueue(
        session_id=session_id, run_id=session.active_run, user_id=user_id, running_count=running
    )
    events.append(db, session_id, resumed, run_id=session.active_run)
    return session.active_run


def discard(db: Db, session_id: str, user_id: str) -> None:
    """Drop the queued message: its run is cancelled, the message superseded."""
    session = sessions.lock(db, session_id)
    next_state(State(session.state), Action.DISCARD)
    run_id = session.active_run
    assert run_id is not None, "a queued session has a pending run"
    run = runs.get(db, run_id)
    message_id = run.operator_message or ""
    runs.close(db, run_id, state="cancelled", finish_reason="discarded", user_id=user_id)
    supersessions.supersede(db, session_id, [message_id], "discard", run_id)
    discarded = SessionQueuedDiscarded(
        session_id=session_id, run_id=run_id, message_id=message_id, user_id=user_id
    )
    events.append(db, session_id, discarded, run_id=run_id)
    sessions.move(db, session_id, Action.DISCARD, "discard", run_id=run_id, active_run=None)


def require_slot(db: Db, session: SessionRow) -> None:
    """Conflict when the session may not run just now; one that only waits needs no slot."""
    full = None if session.without_slot else full_because(db, session)
    if full:
        reason, running, limit = full
        raise Conflict(
            f"no free slot: {running} of {limit} sessions are running ({reason})",
            {"reason": QUEUED_REASON, "limit": reason, "running": running, "max": limit},
        )


def yield_slot(db: Db, session_id: str, run_id: str) -> None:
    """Let others run while nobody of this run is at work: all wait for an operator's word."""
    if not approvals.all_wait(db, run_id):
        return
    session = sessions.lock(db, session_id)
    if session.active_run == run_id and not session.without_slot:
        _mark(db, session, run_id, without_slot=True)


def take_slot(db: Db, session_id: str, run_id: str) -> bool:
    """Take a slot for a session that waited without one; False while there is none."""
    session = sessions.lock(db, session_id)
    if session.without_slot and session.active_run == run_id:
        if full_because(db, session):
            return False
        _mark(db, session, run_id, without_slot=False)
    return True


def _mark(db: Db, session: SessionRow, run_id: str, *, without_slot: bool) -> None:
    change(db, SessionRow, session.id, without_slot=without_slot)
    count = sessions.running_count(db, session.project_id, session.created_by)
    events.append(db, session.id, count, run_id=run_id)


def full_because(db: Db, session: SessionRow) -> tuple[str, int, int] | None:
    """Which limit is reached, with its numbers; None when there is a slot."""
    if db.get_bind().dialect.name == "postgresql":
        key = crc32(session.created_by.encode())
        db.connection().execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": key})
    running, limit = sessions.project_slots(db, session.project_id)
    if running >= limit:
        return "per_project", running, limit
    running, limit = sessions.operator_slots(db, session.created_by)
    if running >= limit:
        return "per_operator", running, limit
    return None


def _queue(
    db: Db, session_id: str, run_id: str, message_id: str, full: tuple[str, int, int]
) -> Admitted:
    reason, running, limit = full
    queued = SessionQueued(
        session_id=session_id,
        run_id=run_id,
        message_id=message_id,
        reason=reason,
        running_count=running,
        limit=limit,
    )
    events.append(db, session_id, queued, run_id=run_id)
    moved = sessions.move(
        db,
        session_id,
        Action.QUEUE,
        "message",
        run_id=run_id,
        queued_reason=QUEUED_REASON,
        active_run=run_id,
        failed_run_id=None,
    )
    return Admitted(State(moved.state), run_id, message_id)
