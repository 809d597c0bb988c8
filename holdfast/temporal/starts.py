"""The start of a workflow. One that is running already stays as it is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from temporalio.client import Client, WithStartWorkflowOperation
from temporalio.common import WorkflowIDConflictPolicy

from holdfast.domain.wire import TASK_TIMEOUT_S
from holdfast.temporal.search_attributes import keywords


@dataclass(frozen=True, kw_only=True)
class Start:
    """What a workflow is started with, and what the Temporal UI shows of it from the beginning."""

    workflow: str
    argument: object
    id: str
    task_queue: str
    search_attributes: Mapping[str, str] = field(default_factory=dict)
    summary: str | None = None

    async def send(
        self, client: Client, *, signal: str | None = None, signal_args: Sequence[object] = ()
    ) -> None:
        """Start the workflow; `signal` reaches it also where it is running."""
        await client.start_workflow(
            self.workflow,
            self.argument,
            start_signal=signal,
            start_signal_args=signal_args,
            **self._options(),
        )

    def with_update(self) -> WithStartWorkflowOperation[Any, Any]:
        """The start as a part of an update's request; good for one request."""
        operation: WithStartWorkflowOperation[Any, Any] = WithStartWorkflowOperation(
            self.workflow, self.argument, **self._options()
        )
        # The client tells this future of a failure too; nobody else would hear it, and it would
        # be written to the log as one that was never retrieved.
        operation._workflow_handle.add_done_callback(
            lambda done: done.cancelled() or done.exception()
        )
        return operation

    def _options(self) -> dict[str, Any]:
        return {
            "id": self.id,
            "task_queue": self.task_queue,
            "task_timeout": timedelta(seconds=TASK_TIMEOUT_S),
            "id_conflict_policy": WorkflowIDConflictPolicy.USE_EXISTING,
            "search_attributes": keywords(self.search_attributes),
            "static_summary": self.summary,
        }
