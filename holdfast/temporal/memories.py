"""The workflows that keep memories up to date: asked for one more round, and how far it is."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from holdfast.domain.errors import Conflict, Unavailable
from holdfast.domain.memory import SyncReport
from holdfast.domain.memory_steps import (
    ASK,
    SYNC,
    MemoryAnswer,
    MemoryRequest,
    MemoryStart,
    workflow_id,
)
from holdfast.domain.wire import MEMORY_WORKFLOW
from holdfast.temporal.connection import Connection

if TYPE_CHECKING:
    from temporalio.client import Client, WorkflowExecutionDescription

    from holdfast.temporal.starts import Start

STATUS_S = 5.0
# So long a Temporal that cannot be reached is waited for: it may be starting.
AWAY_S = 5.0
AWAY = "Temporal does not answer; the same request may be repeated"
BROKEN_OFF = "the sync was broken off"


@dataclass(frozen=True)
class SyncProgress:
    """Whether a sync goes on, and how far it is."""

    running: bool
    done: int | None = None
    total: int | None = None


class MemoryWorkflows:
    """One workflow per project; it is started when it is not running."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    async def ask(self, project_id: str) -> None:
        """Have one more round made; returns as soon as that is certain."""
        start = self._start(project_id, force=False)
        client = await self._connection.client()
        await start.send(client, signal=ASK, signal_args=[MemoryRequest()])

    async def sync(
        self, project_id: str, *, command_id: str, force: bool, wait_s: float
    ) -> SyncReport | None:
        """The report of a round that began after now; None when it is not over within `wait_s`.

        A round that failed for good is raised as the Refusal that it was.
        """
        from holdfast.temporal.updates import Unanswered, Update, WorkflowBroken

        start = self._start(project_id, force=force)
        update = Update(SYNC, MemoryRequest(force=force), command_id, MemoryAnswer, start)
        try:
            answer = await update.answer(self._connection, within_s=wait_s, away_max_s=AWAY_S)
        except Unanswered as error:
            if error.away:
                raise Unavailable(AWAY) from error
            return None
        except WorkflowBroken as error:
            if error.failure is None:
                raise Unavailable(BROKEN_OFF) from error
            raise Conflict(error.failure.message) from error
        return answer.report

    async def progress(self, project_id: str) -> SyncProgress:
        """What Temporal knows of a sync; no worker is needed for that."""
        from temporalio.client import WorkflowExecutionStatus
        from temporalio.service import RPCError, RPCStatusCode

        try:
            client = await self._connection.client()
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

    def _start(self, project_id: str, *, force: bool) -> Start:
        from holdfast.temporal.starts import Start

        return Start(
            workflow=MEMORY_WORKFLOW,
            argument=MemoryStart(project_id=project_id, force=force),
            id=workflow_id(project_id),
            task_queue=self._connection.settings.task_queue,
        )


async def _heartbeat(client: Client, found: WorkflowExecutionDescription) -> SyncProgress:
    for activity in found.raw_description.pending_activities:
        # Also of an attempt that died: its numbers are the last that anybody heard.
        payloads = list(activity.heartbeat_details.payloads)
        values: list[Any] = await client.data_converter.decode(payloads)
        if len(values) == 2:
            return SyncProgress(running=True, done=int(values[0]), total=int(values[1]))
    return SyncProgress(running=True)
