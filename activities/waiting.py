"""Messages that wait in a busy session: kept, said in its run, or begun. One transaction each."""

from __future__ import annotations

from temporalio import activity

from activities.refusals import answering
from activities.sessions import max_steps
from activities.tools.pending import pending_calls
from holdfast.domain.commands import INTERRUPT, STEER
from holdfast.domain.lifecycle import State
from holdfast.domain.steps import AdmittedRun, KeepStep, Kept, Next, NextStep, Steered, SteerStep
from holdfast.storage.database.engine import Db
from holdfast.storage.database.opening import OpenStore
from holdfast.storage.database.tables import SessionRow
from holdfast.storage.projects import projects
from holdfast.storage.sessions import admission, inbox, messages, runs, sessions, waiting


class WaitingActivities:
    """The steps of messages that wait. Each may be repeated: ids decide what was done."""

    def __init__(self, store: OpenStore) -> None:
        self.store = store

    @activity.defn(name="keep_waiting")
    @answering
    async def keep_waiting(self, step: KeepStep) -> Kept:
        """Let a staged message wait; a repeat finds it waiting, or taken."""
        return await self.store.awrite(lambda db: _keep(db, step))

    @activity.defn(name="steer_run")
    @answering
    async def steer_run(self, step: SteerStep) -> Steered:
        """Say what waits for the model's next call; a repeat finds it said."""
        return await self.store.awrite(lambda db: _steer(db, step))

    @activity.defn(name="admit_next")
    @answering
    async def admit_next(self, step: NextStep) -> Next:
        """Begin a run with the next message; a repeat finds that run."""
        return await self.store.awrite(lambda db: _admit_next(db, step))


def _keep(db: Db, step: KeepStep) -> Kept:
    said = messages.find(db, step.message_id)
    if said is not None:
        return Kept(waits=False, run_id=said.run_id)
    if waiting.find(db, step.message_id) is None:
        inbox.stage_given(db, step.session_id, step.message_id, step.content)
    row = waiting.keep(
        db,
        step.session_id,
        message_id=step.message_id,
        when_busy=step.when_busy,
        user_id=step.user_id,
        run_id=step.run_id,
    )
    return Kept(waits=True, run_id=row.run_id)


def _steer(db: Db, step: SteerStep) -> Steered:
    count = waiting.steer(db, step.session_id, step.run_id)
    session = sessions.get(db, step.session_id)
    run = runs.get(db, step.run_id)
    _, answered = pending_calls(db, session, run, projects.file_of(db, session))
    return Steered(count=count, answered=answered)


def _admit_next(db: Db, step: NextStep) -> Next:
    session = sessions.lock(db, step.session_id)
    begun = runs.find(db, session.active_run) if session.active_run else None
    if begun is not None:  # by this step, whose worker died before it could say so
        return _next(db, session, session.state, begun.id, begun.operator_message or "")
    found = waiting.of_session(db, step.session_id)
    if session.state != State.IDLE or not found:
        return Next()
    first = found[0]
    admitted = admission.admit(
        db,
        step.session_id,
        message_id=first.id,
        run_id=first.run_id or step.run_id,
        user_id=first.user_id,
    )
    return _next(db, session, admitted.state.value, admitted.run_id, admitted.message_id)


def _next(db: Db, session: SessionRow, state: str, run_id: str, message_id: str) -> Next:
    run = AdmittedRun(
        state=state,
        run_id=run_id,
        message_id=message_id,
        max_steps=max_steps(projects.file_of(db, session)),
    )
    left = {row.when_busy for row in waiting.of_session(db, session.id)}
    return Next(run=run, steered=STEER in left, interrupted=INTERRUPT in left)
