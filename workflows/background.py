"""Effects that a session goes on without: their trouble is logged, and nobody waits for them."""

from __future__ import annotations

from temporalio import workflow
from temporalio.exceptions import ApplicationError

from holdfast.domain.checkpoint_steps import TreeStep
from holdfast.domain.steps import ProcessesStep
from workflows import steps


async def kill_processes(session_id: str, run_id: str | None) -> None:
    """Kill what a run, or the whole session, left behind."""
    step = ProcessesStep(session_id=session_id, run_id=run_id)
    try:
        await steps.kill_processes(step, summary="kill processes")
    except ApplicationError as error:
        workflow.logger.warning("processes could not be killed: %s", error.message)


async def save_tree(
    session_id: str, *, checkpoint_id: str | None = None, run_id: str | None = None
) -> None:
    """Save the working directory; a session goes on without when that cannot be done."""
    step = TreeStep(session_id=session_id, checkpoint_id=checkpoint_id, run_id=run_id)
    try:
        await steps.snapshot_tree(step, summary="save files")
    except ApplicationError as error:
        workflow.logger.warning("files could not be saved: %s", error.message)
