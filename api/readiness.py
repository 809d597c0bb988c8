"""Whether everything that a message needs answers: the store, Temporal and a worker."""

from __future__ import annotations

from api.services import Services
from holdfast.domain.errors import Refusal
from holdfast.storage.database.engine import ping


async def trouble(services: Services) -> dict[str, str]:
    """What does not answer, by part; empty when ready."""
    found: dict[str, str] = {}
    try:
        await services.store.aread(ping)
    except Exception as error:  # noqa: BLE001 - any failure of the store means not ready
        found["store"] = str(error)[:200]
    words = await _temporal(services)
    if words is not None:
        found["temporal"] = words
    return found


async def _temporal(services: Services) -> str | None:
    from temporalio.api.enums.v1 import TaskQueueType  # noqa: PLC0415 - slow to import
    from temporalio.api.taskqueue.v1 import TaskQueue  # noqa: PLC0415
    from temporalio.api.workflowservice.v1 import DescribeTaskQueueRequest  # noqa: PLC0415
    from temporalio.service import RPCError  # noqa: PLC0415

    settings = services.settings
    request = DescribeTaskQueueRequest(
        namespace=settings.temporal_namespace,
        task_queue=TaskQueue(name=settings.task_queue),
        task_queue_type=TaskQueueType.TASK_QUEUE_TYPE_WORKFLOW,
    )
    try:
        client = await services.commands.client()
        described = await client.workflow_service.describe_task_queue(request)
    except (RPCError, RuntimeError, Refusal) as error:
        return f"does not answer: {str(error)[:200]}"
    return None if described.pollers else f"no worker polls the task queue {settings.task_queue}"
