"""Messages of the operator: a run of an idle session, or kept until a busy one comes to them."""

from __future__ import annotations

from holdfast.domain.commands import (
    INTERRUPT,
    QUEUE,
    REJECT,
    STEER,
    WHEN_BUSY,
    Answer,
    NewMessage,
    Retry,
)
from holdfast.domain.errors import Conflict, ValidationFailed
from holdfast.domain.lifecycle import Action, State
from holdfast.domain.steps import AdmitStep, AdmittedRun, KeepStep, RetryStep
from workflows import steps
from workflows.ids import fresh_id
from workflows.refusals import refused
from workflows.session_core import SessionCore

BUSY = (State.RUNNING, State.PAUSED, State.QUEUED)


async def take_message(core: SessionCore, command: NewMessage) -> Answer:
    """Begin a run with the message; in a busy session it waits, if that is what was asked for."""
    await core.begin_next()  # what waits was said before
    if core.state in BUSY and command.when_busy != REJECT:
        return await _keep(core, command)
    core.check(Action.START)
    if core.state is State.QUEUED:
        raise refused(Conflict("cannot start while queued", {"state": "queued"}))
    step = AdmitStep(
        session_id=core.id,
        message_id=command.message_id or fresh_id(),
        run_id=fresh_id(),
        user_id=command.user_id or core.carried.operator,
        content=command.content,
    )
    return _begun(core, await steps.admit_message(step))


async def retry_run(core: SessionCore, command: Retry) -> Answer:
    """Run the last run's message again; what that run said no longer counts."""
    await core.begin_next()
    core.check(Action.START)
    if core.state is State.QUEUED:
        raise refused(Conflict("cannot retry while queued", {"state": "queued"}))
    step = RetryStep(
        session_id=core.id,
        run_id=command.run_id,
        new_run_id=fresh_id(),
        user_id=command.user_id or core.carried.operator,
    )
    return _begun(core, await steps.retry_run(step))


def _begun(core: SessionCore, admitted: AdmittedRun) -> Answer:
    core.begin(admitted)
    queued = admitted.state == State.QUEUED
    return Answer(
        state=admitted.state,
        run_id=admitted.run_id,
        message_id=admitted.message_id,
        queued=queued,
        reason="concurrency_limit" if queued else None,
    )


async def _keep(core: SessionCore, command: NewMessage) -> Answer:
    """Keep the message in the database; the model sees it as soon as it was asked for."""
    _check(core, command.when_busy)
    user = command.user_id or core.carried.operator
    step = KeepStep(
        session_id=core.id,
        message_id=command.message_id or fresh_id(),
        when_busy=command.when_busy,
        user_id=user,
        run_id=fresh_id() if command.when_busy == INTERRUPT else None,
        content=command.content,
    )
    kept = await steps.keep_waiting(step)
    run_id = kept.run_id
    if kept.waits:
        core.carried.waiting = True
        if command.when_busy == STEER:
            core.carried.steered = True
            run_id = core.run.run_id if core.run is not None else None
        elif command.when_busy == INTERRUPT and core.run is not None:
            core.halt(core.run, user)
    return Answer(state=core.state, run_id=run_id, message_id=step.message_id, waiting=kept.waits)


def _check(core: SessionCore, when_busy: str) -> None:
    if when_busy not in WHEN_BUSY:
        raise refused(ValidationFailed(f"when_busy is one of {', '.join(WHEN_BUSY)}"))
    queued = core.state is State.QUEUED and when_busy != QUEUE
    if queued or (core.state is State.PAUSED and when_busy == INTERRUPT):
        words = f"cannot {when_busy} while {core.state}"
        raise refused(Conflict(words, {"state": core.state.value}))
