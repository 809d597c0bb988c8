"""Commands that go on: from the queue, from a pause point, or after the word on a compaction."""

from __future__ import annotations

from temporalio import workflow

from holdfast.domain.checkpoint_steps import ResumeStep
from holdfast.domain.commands import Answer, Resume
from holdfast.domain.compaction_steps import ReviewStep
from holdfast.domain.errors import Conflict
from holdfast.domain.lifecycle import State
from holdfast.domain.session_start import RunProgress
from holdfast.domain.steps import ProcessesStep, QueueStep
from workflows import steps
from workflows.background import failure_logged
from workflows.ids import fresh_id
from workflows.refusals import refused
from workflows.session_core import SessionCore

COMPACTION_WORD_CHECKED = "a word on a compaction needs one that waits"


async def resume(core: SessionCore, command: Resume) -> Answer:
    """Go on from the queue, or from the checkpoint."""
    user = command.user_id or core.carried.operator
    words_given = command.message_id is not None or command.message is not None
    if words_given and (core.state is State.QUEUED or core.run is None):
        words = f"there is nothing to answer while {core.state}: no run waits for words"
        raise refused(Conflict(words, {"state": core.state.value}))
    if core.state is State.QUEUED and command.checkpoint_id is None:
        return await _dequeue(core, command, user)
    if core.state is not State.PAUSED or command.queued_run is not None:
        words = f"cannot resume while {core.state}"
        raise refused(Conflict(words, {"state": core.state.value}))
    checkpoint_id = command.checkpoint_id or core.carried.checkpoint_id or ""
    if core.run is None:
        return await _review(core, command, checkpoint_id, user)
    if command.compaction is not None and workflow.patched(COMPACTION_WORD_CHECKED):
        words = "no compaction waits at this checkpoint"
        raise refused(Conflict(words, {"state": core.state.value}))
    step = ResumeStep(
        session_id=core.id,
        checkpoint_id=checkpoint_id,
        command_id=command.command_id,
        nothing_left=core.run.answered
        and not (core.run.pending or core.carried.steered or words_given),
        message_id=command.message_id or (fresh_id() if words_given else None),
        user_id=user,
        content=command.message,
    )
    resumed = await steps.resume_session(step)
    core.carried.checkpoint_id = None
    if resumed.steered:
        core.carried.steered = core.carried.waiting = True
    run_id = core.run.run_id
    if resumed.run_id is None:
        core.drop()
    core.enter(resumed.state)
    processes = ProcessesStep(session_id=core.id, run_id=run_id)
    with failure_logged("processes could not be resumed"):
        await core.placement.processes(
            steps.resume_processes, processes, summary="resume processes"
        )
    return Answer(state=core.state, run_id=resumed.run_id, checkpoint_id=checkpoint_id)


async def _dequeue(core: SessionCore, command: Resume, user: str) -> Answer:
    """Start what is queued; one who comes by itself says what it saw waiting (auto_resume)."""
    waiting_run = core.run.run_id if core.run is not None else None
    if command.queued_run not in (None, waiting_run):
        raise refused(Conflict("another message is queued by now", {"state": "queued"}))
    trigger = "auto_resume" if command.queued_run is not None else "resume"
    step = QueueStep(session_id=core.id, user_id=user, trigger=trigger)
    run_id = await steps.start_queued(step)
    core.enter(State.RUNNING)
    return Answer(state=core.state, run_id=run_id)


async def _review(core: SessionCore, command: Resume, checkpoint_id: str, user: str) -> Answer:
    """Paused without a run: a compaction waits for the operator's word."""
    step = ReviewStep(
        session_id=core.id,
        checkpoint_id=checkpoint_id,
        new_run_id=fresh_id(),
        user_id=user,
        decision=command.compaction or "approve",
        review_id=command.review_id,
    )
    reviewed = await steps.review_compaction(step)
    core.carried.checkpoint_id = None
    if reviewed.run_id is not None:
        core.carried.run = RunProgress(run_id=reviewed.run_id, max_steps=reviewed.max_steps)
    core.enter(reviewed.state)
    return Answer(state=core.state, run_id=reviewed.run_id, checkpoint_id=checkpoint_id)
