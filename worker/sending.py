"""Commands that nobody at the API sends: sessions that start by themselves."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from temporalio.client import Client, WithStartWorkflowOperation
from temporalio.common import WorkflowIDConflictPolicy

from holdfast.domain.commands import Answer, Command
from holdfast.domain.session_start import SessionStart
from holdfast.domain.wire import TASK_TIMEOUT_S, WORKFLOW


async def send(
    client: Client, task_queue: str, session_id: str, name: str, command: Command
) -> Answer:
    """Send `command` as the update `name`; a session without its workflow gets one first."""
    start: WithStartWorkflowOperation[Any, Any] = WithStartWorkflowOperation(
        WORKFLOW,
        SessionStart(session_id),
        id=session_id,
        task_queue=task_queue,
        task_timeout=timedelta(seconds=TASK_TIMEOUT_S),
        id_conflict_policy=WorkflowIDConflictPolicy.USE_EXISTING,
    )
    answer: Answer = await client.execute_update_with_start_workflow(
        name, command, start_workflow_operation=start, id=command.command_id, result_type=Answer
    )
    return answer
