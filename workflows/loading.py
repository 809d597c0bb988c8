"""The session as the database has it, taken over after a start, a lost history or a difference."""

from __future__ import annotations

from typing import TYPE_CHECKING

from temporalio import workflow
from temporalio.common import SearchAttributeKey

from holdfast.domain.commands import Answer
from holdfast.domain.lifecycle import State
from holdfast.domain.session_start import RunProgress
from holdfast.domain.steps import Loaded, LoadStep, RecoverStep
from workflows import steps

if TYPE_CHECKING:
    from workflows.session_core import SessionCore

WITH_RUN = (State.RUNNING, State.PAUSED, State.QUEUED)
TITLE = SearchAttributeKey.for_keyword("Title")
PROJECT = SearchAttributeKey.for_keyword("Project")
OPERATOR = SearchAttributeKey.for_keyword("Operator")


async def load(core: SessionCore) -> None:
    """Become what the database says, after a start or a lost history."""
    found = await steps.load_session(LoadStep(session_id=core.id, begins=True))
    carried = core.carried
    carried.project_id, carried.operator = found.project_id, found.operator
    carried.title, carried.checkpoint_id = found.title, found.checkpoint_id
    carried.compact_every_minutes = found.compact_every_minutes
    state = found.state
    if found.run_id is not None and state == State.RUNNING:
        recover = RecoverStep(session_id=core.id, run_id=found.run_id, policy=found.on_crash)
        state = (await steps.recover_run(recover)).state
    carried.run = _progress(found) if state in WITH_RUN else None
    _take_over_waiting(core, found)
    if found.message_id is not None and found.run_id is not None:
        # Its command may come again: it was taken, but nobody was told before the crash.
        queued = found.state == State.QUEUED
        taken = Answer(
            state=found.state,
            run_id=found.run_id,
            message_id=found.message_id,
            queued=queued,
            reason="concurrency_limit" if queued else None,
        )
        core.remember(found.message_id, taken)
    # Whoever started us, be it the API or the scan after a loss, the Temporal UI finds us.
    shown = {PROJECT: found.project_id, OPERATOR: found.operator, TITLE: found.title[:200]}
    workflow.upsert_search_attributes([key.value_set(value) for key, value in shown.items()])
    core.enter(state)


async def realign(core: SessionCore) -> None:
    """Become what the database says, where it says something else.

    A worker that dies after a short step, before it could report it, leaves such a difference.
    """
    found = await steps.load_session(LoadStep(session_id=core.id))
    if found.run_id != (core.run.run_id if core.run is not None else None):
        core.drop()
        core.carried.run = _progress(found) if found.state in WITH_RUN else None
    core.carried.checkpoint_id = found.checkpoint_id
    _take_over_waiting(core, found)
    core.enter(found.state)


def _take_over_waiting(core: SessionCore, found: Loaded) -> None:
    """What waits in the database is seen to; an interrupt may have been lost half way."""
    carried = core.carried
    carried.waiting = carried.waiting or bool(found.waiting)
    carried.steered = carried.run is not None and "steer" in found.waiting
    if carried.run is not None and found.state == State.RUNNING and "interrupt" in found.waiting:
        core.halt(carried.run, carried.operator)


def _progress(found: Loaded) -> RunProgress | None:
    if found.run_id is None:
        return None
    return RunProgress(
        run_id=found.run_id,
        step=found.steps,
        max_steps=found.max_steps,
        pending=list(found.pending),
        answered=found.answered,
    )
