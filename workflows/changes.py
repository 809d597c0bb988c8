"""Shows what a session changed in its folder, asked on the session's host and beside its work."""

from __future__ import annotations

from temporalio import workflow

from holdfast.domain.checkpoint_steps import SHOW_CHANGES, ChangesFound, ChangesStart, ChangesStep
from holdfast.domain.wire import CHANGES_WORKFLOW
from workflows import steps
from workflows.placement import Placement


@workflow.defn(name=CHANGES_WORKFLOW)
class ChangesWorkflow:
    """Lives while somebody asks."""

    @workflow.init
    def __init__(self, start: ChangesStart) -> None:
        self._placement = Placement(start.session_id)
        self._asked = False

    @workflow.run
    async def run(self, start: ChangesStart) -> None:
        """Until every question is answered."""
        await workflow.wait_condition(lambda: self._asked and workflow.all_handlers_finished())

    @workflow.update(name=SHOW_CHANGES, description="Compare the folder with how it was.")
    async def show(self, step: ChangesStep) -> ChangesFound:
        """The changes, or why they cannot be told."""
        self._asked = True
        return await self._placement.on_host(steps.read_changes, step, summary="changes")
