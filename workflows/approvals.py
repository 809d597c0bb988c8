"""Calls that wait for an operator's word: durable, for ever or until they expire.

The answer itself is in the database, written once by a step. A workflow is only woken by it; what
becomes of the call is then read by the step that makes it.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Protocol

from temporalio import workflow
from temporalio.exceptions import FailureError, is_cancelled_exception

from holdfast.domain.commands import Answer
from holdfast.domain.permissions.approval_steps import (
    ANSWERED_SIGNAL,
    Asked,
    Decide,
    DecideStep,
)
from workflows import steps

SOON = timedelta(milliseconds=1)
APPROVALS = "calls wait for approvals"


class Asking(Protocol):
    """The session's own state, as far as answers depend on it."""

    id: str
    approvals: Approvals

    @property
    def state(self) -> str:
        """The session's state."""


class Approvals:
    """The approvals that one agent waits for."""

    def __init__(self, session_id: str) -> None:
        self.session_id = session_id
        self.waiting = 0
        self._answered: dict[str, None] = {}

    def hear(self, approval_id: str) -> None:
        """Somebody answered; it may come before the call waits."""
        self._answered[approval_id] = None

    async def answered(self, asked: Asked) -> None:
        """Wait for an answer, or until there can be none any more."""
        self.waiting += 1
        try:
            await workflow.wait_condition(
                lambda: asked.approval_id in self._answered,
                timeout=_time_left(asked),
                timeout_summary="approval expires",
            )
        except TimeoutError:
            step = DecideStep(
                session_id=self.session_id, approval_id=asked.approval_id, decision="expire"
            )
            await steps.decide_approval(step)
        finally:
            self.waiting -= 1
            self._answered.pop(asked.approval_id, None)


async def decide(session: Asking, command: Decide) -> Answer:
    """Store an answer, and wake whoever waits for it; the first answer wins."""
    step = DecideStep(
        session_id=session.id,
        approval_id=command.approval_id,
        decision=command.decision,
        user_id=command.user_id,
        remember=command.remember,
        words_id=command.words_id,
    )
    decided = await steps.decide_approval(step)
    if decided.invocation_id is None:
        session.approvals.hear(command.approval_id)
    else:
        await _tell(f"{session.id}/{decided.invocation_id}", command.approval_id)
    return Answer(state=session.state, reason=decided.state)


async def _tell(subagent: str, approval_id: str) -> None:
    handle = workflow.get_external_workflow_handle(subagent)
    try:
        await handle.signal(ANSWERED_SIGNAL, approval_id)
    except FailureError as error:
        if is_cancelled_exception(error):
            raise
        workflow.logger.info("subagent %s is over already", subagent)


def _time_left(asked: Asked) -> timedelta | None:
    if asked.expires_at is None:
        return None
    left = asked.expires_at / 1000 - workflow.now().timestamp()
    return max(timedelta(seconds=left), SOON)
