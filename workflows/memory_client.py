"""How others ask for a memory's sync: the workflow is started when it is not running."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from temporalio.client import (
    Client,
    WithStartWorkflowOperation,
    WorkflowExecutionDescription,
    WorkflowExecutionStatus,
    WorkflowUpdateFailedError,
    WorkflowUpdateRPCTimeoutOrCancelledError,
)
from temporalio.common import WorkflowIDConflictPolicy
from temporalio.exceptions import ApplicationError
from temporalio.service import RPCError, RPCStatusCode

from holdfast.domain.errors import Unavailable, refusal_from
from holdfast.domain.memory import SyncReport
from holdfast.domain.memory_steps import (
    ASK,
    SYNC,
    MemoryAnswer,
    MemoryRequest,
    MemoryStart,
    workflow_id,
)
from holdfast.domain.wire import MEMORY_WORKFLOW, PASSING_STATUSES, TASK_TIMEOUT_S, UPDATE_LOST

RETRY_MIN_S, RETRY_MAX_S = 0.05, 0.5
STATUS_S = 5.0
# So long a Temporal that cannot be reached is waited for: it may be starting.
AWAY_S = 5.0
AWAY = "Temporal does not answer; the same request may be repeated"


@dataclass(frozen=True)
class SyncProgress:
    """Whether a sync goes on, and how far it is."""

    running: bool
    done: int | None = None
    total: int | None = None


async def ask(client: Client, task_queue: str, project_id: str, *, force: bool = False) -> None:
    """Have one more round made; returns as soon as that is certain."""
    await client.start_workflow(
        MEMORY_WORKFLOW,
        MemoryStart(project_id=project_id, force=force),
        id=workflow_id(project_id),
        task_queue=task_queue,
        task_timeout=timedelta(seconds=TASK_TIMEOUT_S),
        id_conflict_policy=WorkflowIDConflictPolicy.USE_EXISTING,
        start_signal=ASK,
        start_signal_args=[MemoryRequest(force=force)],
    )


async def sync(
    client: Client, task_queue: str, project_id: str, *, command_id: str, force: bool, wait_s: float
) -> SyncReport | None:
    """The report of a round that began after now; None when it is not over within `wait_s`.

    A round that failed for good is raised as the Refusal that it was.
    """
    request = _Request(client, task_queue, project_id, command_id, force)
    attempt = asyncio.create_task(request.until_taken())
    try:
        # The client turns a cancellation into an error of its own, so no `asyncio.timeout` here.
        await asyncio.wait({attempt}, timeout=wait_s)
        if attempt.done():
            return attempt.result()
        if request.away:
            raise Unavailable(AWAY)
        return None
    finally:
        attempt.cancel()


async def progress(client: Client, project_id: str) -> SyncProgress:
    """What Temporal knows of a sync; no worker is needed for that."""
    try:
        found = await client.get_workflow_handle(workflow_id(project_id)).describe(
            rpc_timeout=timedelta(seconds=STATUS_S)
        )
    except RPCError as error:
        if error.status is RPCStatusCode.NOT_FOUND:
            return SyncProgress(running=False)
        raise Unavailable(AWAY) from error
    except RuntimeError as error:  # the client could not connect
        raise Unavailable(AWAY) from error
    if found.status is not WorkflowExecutionStatus.RUNNING:
        return SyncProgress(running=False)
    return await _heartbeat(client, found)


async def _heartbeat(client: Client, found: WorkflowExecutionDescription) -> SyncProgress:
    for activity in found.raw_description.pending_activities:
        # Also of an attempt that died: its numbers are the last that anybody heard.
        payloads = list(activity.heartbeat_details.payloads)
        values: list[Any] = await client.data_converter.decode(payloads)
        if len(values) == 2:
            return SyncProgress(running=True, done=int(values[0]), total=int(values[1]))
    return SyncProgress(running=True)


@dataclass
class _Request:
    """One update, sent again until a run of the workflow has taken and answered it."""

    client: Client
    task_queue: str
    project_id: str
    command_id: str
    force: bool
    away: bool = False  # Temporal could not be reached, so nobody may have heard it

    async def until_taken(self) -> SyncReport | None:
        loop, pause = asyncio.get_running_loop(), RETRY_MIN_S
        patience = loop.time() + AWAY_S
        while True:
            try:
                return await self._update()
            except WorkflowUpdateFailedError as error:
                _raise_unless_lost(error)
            except WorkflowUpdateRPCTimeoutOrCancelledError:
                # Also what the client makes of our own cancellation, which must be heard.
                task = asyncio.current_task()
                if task is not None and task.cancelling():
                    raise asyncio.CancelledError from None
            except RPCError as error:
                if error.status.name not in PASSING_STATUSES:
                    raise
                self.away = error.status is RPCStatusCode.UNAVAILABLE
            except RuntimeError:
                self.away = True  # the client could not connect
            if self.away and loop.time() > patience:
                raise Unavailable(AWAY)
            await asyncio.sleep(pause)  # noqa: TID251 - a client's pause, not a workflow's
            pause = min(pause * 2, RETRY_MAX_S)

    async def _update(self) -> SyncReport | None:
        start: WithStartWorkflowOperation[Any, Any] = WithStartWorkflowOperation(
            MEMORY_WORKFLOW,
            MemoryStart(project_id=self.project_id, force=self.force),
            id=workflow_id(self.project_id),
            task_queue=self.task_queue,
            task_timeout=timedelta(seconds=TASK_TIMEOUT_S),
            id_conflict_policy=WorkflowIDConflictPolicy.USE_EXISTING,
        )
        # The client tells this future of a failure too; nobody else would hear it, and it would
        # be written to the log as one that was never retrieved.
        started = start._workflow_handle
        started.add_done_callback(lambda done: done.cancelled() or done.exception())
        answer: MemoryAnswer = await self.client.execute_update_with_start_workflow(
            SYNC,
            MemoryRequest(force=self.force),
            start_workflow_operation=start,
            id=self.command_id,
            result_type=MemoryAnswer,
        )
        return answer.report


def _raise_unless_lost(error: WorkflowUpdateFailedError) -> None:
    cause = error.cause
    if not isinstance(cause, ApplicationError):
        raise Unavailable("the sync was broken off") from error
    if cause.type != UPDATE_LOST:
        raise refusal_from(cause.type or "unavailable", cause.message) from error
