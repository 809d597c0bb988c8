"""Messages of the operator, as the session takes them."""

from __future__ import annotations

from holdfast.domain.commands import Answer, NewMessage
from holdfast.domain.errors import Conflict
from holdfast.domain.lifecycle import Action, State
from holdfast.domain.session_start import RunProgress
from holdfast.domain.steps import AdmitStep
from workflows import steps
from workflows.ids import fresh_id
from workflows.refusals import refused
from workflows.session_core import SessionCore


async def take_message(core: SessionCore, command: NewMessage) -> Answer:
    """Take a message of an idle session; its run starts, or waits for a slot."""
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
    admitted = await steps.admit_message(step)
    if admitted.state in (State.RUNNING, State.QUEUED):
        core.carried.run = RunProgress(run_id=admitted.run_id, max_steps=admitted.max_steps)
    core.enter(admitted.state)
    queued = admitted.state == State.QUEUED
    return Answer(
        state=admitted.state,
        run_id=admitted.run_id,
        message_id=admitted.message_id,
        queued=queued,
        reason="concurrency_limit" if queued else None,
    )
