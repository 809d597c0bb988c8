"""The worker's connection to Temporal, patient while it is not there yet."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import structlog
from temporalio.api.enums.v1 import IndexedValueType
from temporalio.api.operatorservice.v1 import (
    AddSearchAttributesRequest,
    ListSearchAttributesRequest,
)
from temporalio.client import Client
from temporalio.runtime import LoggingConfig, Runtime, TelemetryConfig, TelemetryFilter
from temporalio.service import RPCError

from holdfast.domain.wire import SEARCH_ATTRIBUTES
from holdfast.settings.environment import Settings
from workflows.payloads import data_converter

log = structlog.get_logger()
FIRST_WAIT_S, LONGEST_WAIT_S = 0.1, 2.0


async def connect(settings: Settings, stopped: asyncio.Event) -> Client | None:
    """Connect, however long Temporal takes; None when the worker is stopped meanwhile."""
    runtime = Runtime(
        telemetry=TelemetryConfig(
            logging=LoggingConfig(TelemetryFilter(core_level="WARN", other_level="ERROR"))
        ),
        worker_heartbeat_interval=timedelta(seconds=30),
    )
    wait = FIRST_WAIT_S
    while not stopped.is_set():
        try:
            return await Client.connect(
                settings.temporal_address or "127.0.0.1:7233",
                namespace=settings.temporal_namespace,
                data_converter=data_converter,
                runtime=runtime,
            )
        except (RPCError, RuntimeError) as error:
            log.info("worker.waiting_for_temporal", reason=str(error)[:200])
        await asyncio.sleep(wait)
        wait = min(wait * 1.5, LONGEST_WAIT_S)
    return None


async def ensure_search_attributes(client: Client, namespace: str) -> None:
    """Create the attributes that the Temporal UI filters by, where they are missing."""
    service = client.operator_service
    try:
        known = await service.list_search_attributes(
            ListSearchAttributesRequest(namespace=namespace)
        )
        missing = [name for name in SEARCH_ATTRIBUTES if name not in known.custom_attributes]
        if missing:
            keyword = IndexedValueType.INDEXED_VALUE_TYPE_KEYWORD
            await service.add_search_attributes(
                AddSearchAttributesRequest(
                    namespace=namespace, search_attributes=dict.fromkeys(missing, keyword)
                )
            )
    except RPCError as error:
        log.warning("worker.no_search_attributes", reason=error.message)
