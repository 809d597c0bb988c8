"""The connection to Temporal: the API makes it with its first use, the worker with patience.

temporalio takes most of a second to import, and the API serves before it needs it: so this file,
`sessions` and `memories` import it in their functions.
"""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import structlog

from holdfast.settings.environment import Settings

if TYPE_CHECKING:
    from temporalio.client import Client

log = structlog.get_logger()
FIRST_WAIT_S, LONGEST_WAIT_S = 0.1, 2.0


class Connection:
    """What one process reaches Temporal by. Without a client it connects with its first use."""

    def __init__(self, settings: Settings, client: Client | None = None) -> None:
        self.settings = settings
        self._client = client

    async def client(self) -> Client:
        """The client. It connects again by itself: Temporal may come and go."""
        if self._client is None:
            self._client = await connect(self.settings, lazy=True)
        return self._client

    async def trouble(self) -> str | None:
        """Why a command would not be answered: no Temporal, or no worker; None when it would."""
        from temporalio.api.enums.v1 import TaskQueueType
        from temporalio.api.taskqueue.v1 import TaskQueue
        from temporalio.api.workflowservice.v1 import DescribeTaskQueueRequest
        from temporalio.service import RPCError

        task_queue = self.settings.task_queue
        request = DescribeTaskQueueRequest(
            namespace=self.settings.temporal_namespace,
            task_queue=TaskQueue(name=task_queue),
            task_queue_type=TaskQueueType.TASK_QUEUE_TYPE_WORKFLOW,
        )
        try:
            client = await self.client()
            described = await client.workflow_service.describe_task_queue(request)
        except (RPCError, RuntimeError) as error:
            return f"does not answer: {str(error)[:200]}"
        return None if described.pollers else f"no worker polls the task queue {task_queue}"


async def connect(settings: Settings, **options: Any) -> Client:
    """A client as every process of ours has it; `options` are the SDK's."""
    from temporalio.client import Client

    from holdfast.temporal.payloads import data_converter

    return await Client.connect(
        settings.temporal_address,
        namespace=settings.temporal_namespace,
        data_converter=data_converter,
        **options,
    )


async def connect_patiently(settings: Settings, stopped: asyncio.Event) -> Client | None:
    """A worker's client, however long Temporal takes; None when `stopped` is set meanwhile."""
    from temporalio.runtime import LoggingConfig, Runtime, TelemetryConfig, TelemetryFilter
    from temporalio.service import RPCError

    runtime = Runtime(
        telemetry=TelemetryConfig(
            logging=LoggingConfig(TelemetryFilter(core_level="WARN", other_level="ERROR"))
        ),
        worker_heartbeat_interval=timedelta(seconds=30),
    )
    wait = FIRST_WAIT_S
    while not stopped.is_set():
        try:
            return await connect(settings, runtime=runtime)
        except (RPCError, RuntimeError) as error:
            log.info("worker.waiting_for_temporal", reason=str(error)[:200])
        await asyncio.sleep(wait)
        wait = min(wait * 1.5, LONGEST_WAIT_S)
    return None
