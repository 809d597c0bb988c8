"""Effects that a session goes on without: their trouble is logged, and nobody waits for them."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

from temporalio import workflow
from temporalio.exceptions import FailureError, is_cancelled_exception

from holdfast.domain.checkpoint_steps import TreeStep
from holdfast.domain.steps import ProcessesStep
from workflows import steps
from workflows.placement import Placement

# A host that is away for a while finds what it must kill when it is back.
KILL_PATIENCE = timedelta(minutes=10)


class Background:
    """Tasks of a workflow beside its own work; it does not end or roll over before they have."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self, work: Coroutine[Any, Any, None]) -> None:
        """Do this beside the workflow's own work."""
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def settled(self) -> None:
        """Wait until no task and no handler of the workflow is under way."""
        await workflow.wait_condition(lambda: workflow.all_handlers_finished() and not self._tasks)


@contextmanager
def failure_logged(what: str) -> Iterator[None]:
    """Log the failure or the timeout of a step, and go on; a cancellation is passed on."""
    try:
        yield
    except FailureError as error:
        if is_cancelled_exception(error):
            raise
        workflow.logger.warning("%s: %s", what, error.message)


async def kill_processes(placement: Placement, run_id: str | None) -> None:
    """Kill what a run, or the whole session, left behind."""
    step = ProcessesStep(session_id=placement.session_id, run_id=run_id)
    with failure_logged("processes could not be killed"):
        await placement.processes(
            steps.kill_processes, step, summary="kill processes", patience=KILL_PATIENCE
        )


async def save_tree(placement: Placement, checkpoint_id: str | None) -> None:
    """Save the working directory; a session goes on without when that cannot be done."""
    step = TreeStep(session_id=placement.session_id, checkpoint_id=checkpoint_id)
    with failure_logged("files could not be saved"):
        await placement.save_tree(step)
