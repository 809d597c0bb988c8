"""Stands in for the workflows in tests of the API: the same storage steps, no Temporal."""

from __future__ import annotations

from activities.approvals import decide, read_words
from holdfast.domain.clock import now_ms
from holdfast.domain.commands import (
    INTERRUPT,
    REJECT,
    STEER,
    Answer,
    Cancel,
    Command,
    Compact,
    Move,
    NewMessage,
    Pause,
    Resume,
    Retry,
    RollBack,
)
from holdfast.domain.errors import Conflict
from holdfast.domain.events import SessionEnded
from holdfast.domain.ids import new_id
from holdfast.domain.lifecycle import Action, State, next_state
from holdfast.domain.permissions.approval_steps import Decide, DecideStep
from holdfast.storage.database.engine import Db
from holdfast.storage.database.opening import OpenStore
from holdfast.storage.database.rows import change
from holdfast.storage.database.tables import SessionRow
from holdfast.storage.database.tables_history import Compaction
from holdfast.storage.hosts import hosts
from holdfast.storage.log import events
from holdfast.storage.moves import checkpoints, compactions, message_points, rollback
from holdfast.storage.sessions import admission, messages, runs, sessions, waiting

PROMPTS = {"primary": "You are the root."}


class SessionsDouble:
    """Answers commands as a session's workflow does, once per command id."""

    def __init__(self, store: OpenStore) -> None:
        self.store = store
        self.answers: dict[str, Answer] = {}
        self.asked: list[tuple[str, Command]] = []

    async def send(self, session: SessionRow, name: str, command: Command) -> Answer:
        """One command."""
        self.asked.append((name, command))
        known = self.answers.get(command.command_id)
        if known is None:
            known = await self.store.awrite(lambda db: self._act(db, session.id, name, command))
            self.answers[command.command_id] = known
        return known

    def finish(self, session_id: str, *, state: str = "done") -> None:
        """Let the session's run come to its end."""

        def end(db: Db) -> None:
            run_id = sessions.get(db, session_id).active_run
            assert run_id is not None
            runs.finish(db, run_id, trigger="run", state=state, finish_reason=state)

        self.store.write(end)

    def _act(self, db: Db, session_id: str, name: str, command: Command) -> Answer:
        if isinstance(command, Retry):
            again = admission.retry(
                db,
                session_id,
                run_id=command.run_id,
                new_run_id=new_id(),
                user_id=command.user_id,
            )
            return Answer(state=again.state, run_id=again.run_id, message_id=again.message_id)
        if isinstance(command, NewMessage):
            if command.when_busy != REJECT and sessions.get(db, session_id).active_run:
                return _keep(db, session_id, command)
            if sessions.get(db, session_id).state == State.QUEUED:
                raise Conflict("cannot start while queued")
            admitted = admission.admit(
                db,
                session_id,
                message_id=command.message_id,
                run_id=new_id(),
                user_id=command.user_id,
            )
            queued = admitted.state is State.QUEUED
            return Answer(
                state=admitted.state,
                run_id=admitted.run_id,
                message_id=admitted.message_id,
                queued=queued,
                reason="concurrency_limit" if queued else None,
            )
        if isinstance(command, Cancel):
            return _cancel(db, session_id, command)
        if isinstance(command, Pause):
            return self._pause(db, session_id, command)
        if isinstance(command, RollBack):
            return self._roll_back(db, session_id, command)
        if isinstance(command, Decide):
            return self._decide(db, session_id, command)
        if isinstance(command, Compact):
            return _compact(db, session_id, command)
        if isinstance(command, Resume) and command.checkpoint_id is not None:
            moved = checkpoints.resume(
                db,
                self.store.blobs,
                session_id,
                command.checkpoint_id,
                command_id=command.command_id,
                message_id=command.message_id,
                user_id=command.user_id,
            )
            return Answer(state=moved.state, run_id=moved.active_run)
        return _named(db, session_id, name, command)

    def _decide(self, db: Db, session_id: str, command: Decide) -> Answer:
        step = DecideStep(
            session_id=session_id,
            approval_id=command.approval_id,
            decision=command.decision,
            user_id=command.user_id,
            remember=command.remember,
        )
        decided = decide(db, step, read_words(self.store.blobs, command.words_id))
        return Answer(state=sessions.get(db, session_id).state, reason=decided.state)

    def _pause(self, db: Db, session_id: str, command: Pause) -> Answer:
        session = sessions.get(db, session_id)
        checkpoints.create(
            db,
            self.store.blobs,
            checkpoint_id=command.checkpoint_id,
            session_id=session_id,
            created_by="operator",
            prompts=PROMPTS,
            run_id=session.active_run,
            reason=command.reason,
        )
        checkpoints.set_tree(db, command.checkpoint_id, None, "no files are saved in this test")
        return Answer(state=State.PAUSED, checkpoint_id=command.checkpoint_id)

    def _roll_back(self, db: Db, session_id: str, command: RollBack) -> Answer:
        point = command.checkpoint_id
        if command.message_id is not None:
            message_points.make(
                db, self.store.blobs, session_id, command.message_id, checkpoint_id=point
            )
        outcome = rollback.roll_back(
            db, session_id, point, user_id=command.user_id, command_id=command.command_id
        )
        return Answer(state=State.IDLE, messages_superseded=outcome.messages_superseded)


def _keep(db: Db, session_id: str, command: NewMessage) -> Answer:
    session = sessions.get(db, session_id)
    interrupts = command.when_busy == INTERRUPT
    row = waiting.keep(
        db,
        session_id,
        message_id=command.message_id,
        when_busy=command.when_busy,
        user_id=command.user_id,
        run_id=new_id() if interrupts else None,
    )
    run_id = session.active_run if command.when_busy == STEER else row.run_id
    if interrupts and session.active_run is not None:
        runs.finish(
            db, session.active_run, trigger="x", state="cancelled", finish_reason="cancelled"
        )
        admission.admit(
            db, session_id, message_id=row.id, run_id=row.run_id or "", user_id=row.user_id
        )
    return Answer(state=session.state, run_id=run_id, message_id=row.id, waiting=True)


def _named(db: Db, session_id: str, name: str, command: Command) -> Answer:
    if name == "resume":
        run_id = admission.start_queued(db, session_id, command.user_id)
        return Answer(state=State.RUNNING, run_id=run_id)
    if name == "discard":
        admission.discard(db, session_id, command.user_id)
        return Answer(state=State.IDLE)
    if name == "reopen":
        return Answer(state=sessions.move(db, session_id, Action.REOPEN, "reopen").state)
    if isinstance(command, Move):
        change(db, SessionRow, session_id, host_id=hosts.get(db, command.host_id).id)
        return Answer(state=sessions.get(db, session_id).state)
    if name != "end":
        raise Conflict(f"cannot {name}: there is no workflow")
    return _end(db, session_id, command)


def _compact(db: Db, session_id: str, command: Compact) -> Answer:
    record = Compaction(
        id=command.compaction_id,
        session_id=session_id,
        created_at=now_ms(),
        trigger="operator_manual",
        strategy="summarize",
        superseded_message_ids=[message.id for message in messages.history(db, session_id)],
    )
    compactions.carry_out(db, record, summary="In short.")
    return Answer(state=sessions.get(db, session_id).state, compaction_id=record.id)


def _cancel(db: Db, session_id: str, command: Cancel) -> Answer:
    session = sessions.get(db, session_id)
    if session.active_run != command.run_id or command.run_id is None:
        raise Conflict("that run is not active")
    runs.finish(db, command.run_id, trigger="cancel", state="cancelled", finish_reason="cancelled")
    return Answer(state=State.IDLE, run_id=command.run_id)


def _end(db: Db, session_id: str, command: Command) -> Answer:
    session = sessions.get(db, session_id)
    next_state(State(session.state), Action.END)
    if session.active_run is not None:
        runs.close(db, session.active_run, state="cancelled", finish_reason="session_ended")
    ended = SessionEnded(
        session_id=session_id, user_id=command.user_id, run_count=0, duration=0, reason="operator"
    )
    events.append(db, session_id, ended)
    moved = sessions.move(
        db,
        session_id,
        Action.END,
        "end",
        ended_at=now_ms(),
        end_reason="operator",
        active_run=None,
    )
    return Answer(state=moved.state)
