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
from holdfast.settings.temporal_variables import names_a_file

if TYPE_CHECKING:
    from temporalio.client import Client

log = structlog.get_logger()
FIRST_WAIT_S, LONGEST_WAIT_S = 0.1, 2.0
REASON_CHARS_MAX = 1000


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
    """A client as every process of ours has it; `options` are the SDK's.

    A service elsewhere may want TLS, certificates or a key: Temporal's own variables say so. The
    embedded server wants none, and what the variables say of another service is not for it.
    """
    from temporalio.client import Client
    from temporalio.envconfig import ClientConfig

    from holdfast.temporal.payloads import data_converter

    said: dict[str, Any] = {}
    if not settings.temporal_embedded:
        said.update(ClientConfig.load_client_connect_config(disable_file=not names_a_file()))
    said.pop("target_host", None)
    said.pop("namespace", None)
    return await Client.connect(
        settings.temporal_address,
        namespace=settings.temporal_namespace,
        data_converter=data_converter,
        **said,
        **options,
    )


async def connect_patiently(
    settings: Settings, stopped: asyncio.Event, *, metrics_address: str | None = None
) -> Client | None:
    """A worker's client, however long Temporal takes; None when `stopped` is set meanwhile.

    With `metrics_address` the SDK serves its Prometheus metrics there.
    """
    from temporalio.runtime import (
        LoggingConfig,
        PrometheusConfig,
        Runtime,
        TelemetryConfig,
        TelemetryFilter,
    )
    from temporalio.service import RPCError

    metrics = None
    if metrics_address is not None:
        metrics = PrometheusConfig(
            bind_address=metrics_address, counters_total_suffix=True, durations_as_seconds=True
        )
    runtime = Runtime(
        telemetry=TelemetryConfig(
            logging=LoggingConfig(TelemetryFilter(core_level="WARN", other_level="ERROR")),
            metrics=metrics,
        ),
        worker_heartbeat_interval=timedelta(seconds=30),
    )
    wait = FIRST_WAIT_S
    while not stopped.is_set():
        try:
            return await connect(settings, runtime=runtime)
        except (RPCError, RuntimeError) as error:
            # A wrong certificate looks like a server that is away; only the reason differs.
            log.info("worker.waiting_for_temporal", reason=str(error)[:REASON_CHARS_MAX])
        await asyncio.sleep(wait)
        wait = min(wait * 1.5, LONGEST_WAIT_S)
    return None
