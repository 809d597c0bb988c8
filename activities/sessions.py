"""Short steps of a session: load, admit, finish, end. Each is one transaction, safe to repeat."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from temporalio import activity

from activities.refusals import answering, blob_wait_is_over
from activities.tools.pending import pending_calls
from holdfast.domain.clock import now_ms
from holdfast.domain.errors import Conflict
from holdfast.domain.events import (
    CommandRefused,
    SessionCrashRecovered,
    SessionEnded,
    SessionFailed,
)
from holdfast.domain.lifecycle import Action, State
from holdfast.domain.project_file import ProjectFile
from holdfast.domain.steps import (
    AdmitStep,
    AdmittedRun,
    CloseToolStep,
    EndStep,
    Finished,
    FinishStep,
    Loaded,
    LoadStep,
    QueueStep,
    RecoverStep,
    RefusalStep,
    RetryStep,
)
from holdfast.storage.database.blobs import BlobMissing
from holdfast.storage.database.engine import Db
from holdfast.storage.database.opening import OpenStore
from holdfast.storage.database.tables import SessionRow
from holdfast.storage.log import events
from holdfast.storage.moves import heads
from holdfast.storage.projects import projects
from holdfast.storage.sessions import (
    admission,
    calls,
    inbox,
    invocations,
    messages,
    runs,
    sessions,
    supersessions,
    tool_calls,
    waiting,
)
from holdfast.storage.sessions.admission import Admitted
from holdfast.storage.sessions.titles import auto_title

T = TypeVar("T")
CRASHED = "daemon_crash_during_run"
CRASHED_WORDS = "Previous run was interrupted by a daemon restart."


class SessionActivities:
    """The steps that move a session."""

    def __init__(self, store: OpenStore) -> None:
        self.store = store

    @activity.defn(name="load_session")
    @answering
    async def load_session(self, step: LoadStep) -> Loaded:
        """The session as the database has it, without runs that nobody carries on any more."""
        if step.begins:
            left = await self.store.aread(lambda db: runs.left_open(db, step.session_id))
            if left:
                await self.store.awrite(lambda db: _close_left_open(db, step.session_id))
        return await self.store.aread(lambda db: _load(db, step.session_id))

    @activity.defn(name="admit_message")
    @answering
    async def admit_message(self, step: AdmitStep) -> AdmittedRun:
        """Run or queue a message. Safe to repeat: the run id is the step's own."""
        return await self.store.awrite(lambda db: _admit(db, step))

    @activity.defn(name="retry_run")
    @answering
    async def retry_run(self, step: RetryStep) -> AdmittedRun:
        """Run a message again. Safe to repeat: the new run's id is the step's own."""
        return await self.store.awrite(lambda db: _retry(db, step))

    @activity.defn(name="start_queued")
    @answering
    async def start_queued(self, step: QueueStep) -> str:
        """Start what is queued; a repeat finds it running."""
        return await self.store.awrite(lambda db: _start_queued(db, step))

    @activity.defn(name="discard_queued")
    @answering
    async def discard_queued(self, step: QueueStep) -> bool:
        """Discard what is queued; a repeat finds the session idle."""
        return await self.store.awrite(lambda db: _discard(db, step))

    @activity.defn(name="finish_run")
    @answering
    async def finish_run(self, step: FinishStep) -> Finished:
        """End a run and write its head; the first end wins."""
        return await self._with_a_head(lambda db, whole: _finish(db, self.store, step, whole=whole))

    @activity.defn(name="recover_run")
    @answering
    async def recover_run(self, step: RecoverStep) -> Finished:
        """A run whose workflow was lost: go on, or give it up, as the project says."""
        return await self._with_a_head(
            lambda db, whole: _recover(db, self.store, step, whole=whole)
        )

    @activity.defn(name="end_session")
    @answering
    async def end_session(self, step: EndStep) -> bool:
        """End the session for good; a repeat finds it ended."""
        return await self._with_a_head(lambda db, whole: _end(db, self.store, step, whole=whole))

    @activity.defn(name="fail_session")
    @answering
    async def fail_session(self, step: EndStep) -> bool:
        """The session cannot go on; its failure is kept."""
        return await self.store.awrite(lambda db: _fail(db, step))

    @activity.defn(name="reopen_session")
    @answering
    async def reopen_session(self, step: EndStep) -> bool:
        """Open a cleanly ended session again."""
        return await self.store.awrite(lambda db: _reopen(db, step))

    @activity.defn(name="record_refusal")
    @answering
    async def record_refusal(self, step: RefusalStep) -> bool:
        """A signal was refused: say so in the audit log."""
        event = CommandRefused(session_id=step.session_id, command=step.command, reason=step.reason)
        await self.store.awrite(lambda db: events.append(db, step.session_id, event))
        return True

    @activity.defn(name="close_tool_call")
    @answering
    async def close_tool_call(self, step: CloseToolStep) -> bool:
        """Give a call that the loop understood its result; a repeat changes nothing."""

        def close(db: Db) -> bool:
            call = tool_calls.find(db, step.tool_call_id)
            assert call is not None, "a tool call is stored before it is closed"
            asked = messages.find(db, call.message_id) if call.message_id else None
            closed = tool_calls.close(
                db,
                call,
                text=step.text,
                output={"result": step.text},
                failed=step.failed,
                invocation_id=asked.invocation_id if asked is not None else None,
            )
            return closed is not None

        return await self.store.awrite(close)

    async def _with_a_head(self, work: Callable[[Db, bool], T]) -> T:
        """Run `work`, which writes a head; in the end a whole one, if the one before it is gone.

        A session must be able to finish and to end whatever became of its blobs.
        """
        try:
            return await self.store.awrite(lambda db: work(db, False))
        except BlobMissing:
            if not blob_wait_is_over():
                raise
        return await self.store.awrite(lambda db: work(db, True))


def max_steps(project_file: ProjectFile) -> int:
    """The steps that a run of the root agent may take."""
    limit = project_file.limits.max_steps
    own = project_file.primary.max_steps
    return own if limit is None else min(own, limit)


def _close_left_open(db: Db, session_id: str) -> None:
    """A compaction by hand that was lost with its workflow ends here, for it is not taken up."""
    error = {"code": CRASHED, "message": CRASHED_WORDS}
    for run_id in runs.left_open(db, session_id):
        runs.close(db, run_id, state="failed", error=error, finish_reason="failed")


def _load(db: Db, session_id: str) -> Loaded:
    session = sessions.get(db, session_id)
    project_file = projects.file_of(db, session)
    run = runs.find(db, session.active_run) if session.active_run else None
    pending, answered = pending_calls(db, session, run, project_file)
    return Loaded(
        state=session.state,
        project_id=session.project_id,
        operator=session.created_by,
        title=session.title or "",
        checkpoint_id=session.current_checkpoint,
        run_id=session.active_run,
        steps=run.steps if run is not None else 0,
        max_steps=max_steps(project_file),
        pending=pending,
        answered=answered,
        on_crash=project_file.on_crash,
        compact_every_minutes=project_file.primary.compaction.schedule_minutes,
        message_id=run.operator_message if run is not None else None,
        waiting=[one.when_busy for one in waiting.of_session(db, session.id)],
    )


def _admit(db: Db, step: AdmitStep) -> AdmittedRun:
    if messages.find(db, step.message_id) is None:
        inbox.stage_given(db, step.session_id, step.message_id, step.content)
    admitted = admission.admit(
        db,
        step.session_id,
        message_id=step.message_id,
        run_id=step.run_id,
        user_id=step.user_id,
    )
    return _as_admitted(db, step.session_id, admitted)


def _retry(db: Db, step: RetryStep) -> AdmittedRun:
    retried = admission.retry(
        db,
        step.session_id,
        run_id=step.run_id,
        new_run_id=step.new_run_id,
        user_id=step.user_id,
    )
    return _as_admitted(db, step.session_id, retried)


def _as_admitted(db: Db, session_id: str, admitted: Admitted) -> AdmittedRun:
    session = sessions.get(db, session_id)
    return AdmittedRun(
        state=admitted.state.value,
        run_id=admitted.run_id,
        message_id=admitted.message_id,
        max_steps=max_steps(projects.file_of(db, session)),
    )


def _start_queued(db: Db, step: QueueStep) -> str:
    session = sessions.lock(db, step.session_id)
    if session.state == State.RUNNING and session.active_run is not None:
        return session.active_run
    return admission.start_queued(db, step.session_id, step.user_id, trigger=step.trigger)


def _discard(db: Db, step: QueueStep) -> bool:
    if sessions.lock(db, step.session_id).state == State.IDLE:
        return False
    admission.discard(db, step.session_id, step.user_id)
    return True


def _finish(db: Db, store: OpenStore, step: FinishStep, *, whole: bool) -> Finished:
    error = None
    if step.error_code is not None:
        error = {"code": step.error_code, "message": step.error_message or step.error_code}
    if step.state != "done":
        tool_calls.abandon(db, step.run_id, "interrupted; unknown whether it took effect")
    invocations.kill_open(db, step.run_id)
    won = runs.finish(
        db,
        step.run_id,
        trigger=step.trigger,
        state=step.state,
        error=error,
        finish_reason=step.finish_reason or step.state,
        user_id=step.user_id,
    )
    if won:
        heads.create(db, store.blobs, step.session_id, run_id=step.run_id, whole=whole)
        auto_title(db, step.session_id)
    session = sessions.get(db, step.session_id)
    return Finished(state=session.state, title=session.title or "")


def _recover(db: Db, store: OpenStore, step: RecoverStep, *, whole: bool) -> Finished:
    recovered = SessionCrashRecovered(
        session_id=step.session_id, failed_run_id=step.run_id, policy=step.policy
    )
    events.append(db, step.session_id, recovered, run_id=step.run_id)
    _keep_words(db, step)
    if step.policy == "fail":
        finish = FinishStep(
            session_id=step.session_id,
            run_id=step.run_id,
            state="failed",
            trigger="crash_recovery",
            error_code=CRASHED,
            error_message=CRASHED_WORDS,
        )
        return _finish(db, store, finish, whole=whole)
    # Their workflows are lost with ours; the calls that they answered are made anew.
    invocations.kill_open(db, step.run_id)
    session = sessions.get(db, step.session_id)
    return Finished(state=session.state, title=session.title or "")


def _keep_words(db: Db, step: RecoverStep) -> None:
    """What was streamed by calls that nobody waits for any more stays, and no longer counts."""
    for message_id, (path, words) in calls.unfinished(db, step.run_id, step.session_id).items():
        messages.append(
            db,
            step.session_id,
            id=message_id,
            run_id=step.run_id,
            role="primary" if path == "primary" else "subagent",
            agent_path=path,
            content=words,
            meta={"partial": True, "interrupted": True},
        )
    cut = [
        message.id
        for message in messages.history(db, step.session_id)
        if message.run_id == step.run_id and message.meta.get("partial")
    ]
    supersessions.supersede(db, step.session_id, cut, "retry", f"recovery:{step.run_id}")


def _close_active_run(db: Db, session: SessionRow, **how: Any) -> bool:
    if session.active_run is None:
        return False
    tool_calls.abandon(db, session.active_run, "interrupted; unknown whether it took effect")
    invocations.kill_open(db, session.active_run)
    return runs.close(db, session.active_run, **how)


def _end(db: Db, store: OpenStore, step: EndStep, *, whole: bool) -> bool:
    session = sessions.lock(db, step.session_id)
    if session.state == State.ENDED:
        return False
    how = {"state": "cancelled", "finish_reason": "session_ended", "user_id": step.user_id}
    if _close_active_run(db, session, **how):
        heads.create(db, store.blobs, session.id, run_id=session.active_run, whole=whole)
    at = now_ms()
    ended = SessionEnded(
        session_id=session.id,
        user_id=step.user_id,
        run_count=session.run_count,
        duration=at - session.created_at,
        reason=step.reason,
    )
    events.append(db, session.id, ended, row=("session", session.id))
    sessions.move(
        db,
        session.id,
        Action.END,
        "end",
        ended_at=at,
        end_reason="failed" if session.state == State.FAILED else step.reason,
        active_run=None,
        current_checkpoint=None,
    )
    return True


def _fail(db: Db, step: EndStep) -> bool:
    session = sessions.lock(db, step.session_id)
    if session.state in (State.FAILED, State.ENDED):
        return False
    failure = {"code": step.error_code, "message": step.error_message}
    _close_active_run(db, session, state="failed", error=failure, finish_reason="session_failed")
    events.append(db, session.id, SessionFailed(session_id=session.id, error=failure))
    sessions.move(
        db,
        session.id,
        Action.FAIL,
        "failure",
        failure=failure,
        active_run=None,
        current_checkpoint=None,
    )
    return True


def _reopen(db: Db, step: EndStep) -> bool:
    session = sessions.lock(db, step.session_id)
    if session.state == State.IDLE:
        return False
    if session.failure is not None or session.end_reason == "failed":
        raise Conflict("only a session that ended cleanly can be reopened")
    sessions.move(db, session.id, Action.REOPEN, "reopen", ended_at=None, end_reason=None)
    return True
