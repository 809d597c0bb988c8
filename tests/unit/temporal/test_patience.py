"""A command that Temporal does not answer is given up in time, and said to be repeatable."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any, cast

import pytest
from temporalio.client import Client, WorkflowUpdateRPCTimeoutOrCancelledError

from holdfast.domain.commands import Command
from holdfast.domain.errors import Unavailable
from holdfast.settings.environment import Settings
from holdfast.storage.database.tables import SessionRow
from holdfast.temporal.connection import Connection
from holdfast.temporal.sessions import SessionWorkflows


class SilentTemporal:
    """Never answers, and swallows a cancellation as temporalio's client does."""

    async def execute_update_with_start_workflow(self, *_: Any, **__: Any) -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            raise WorkflowUpdateRPCTimeoutOrCancelledError from None


@pytest.mark.timeout(400)
async def test_a_silent_temporal_is_not_waited_for_without_end(tmp_path: Path) -> None:
    connection = Connection(Settings(home=tmp_path), cast(Client, SilentTemporal()))
    asked = SessionWorkflows(connection, answer_timeout_s=0.05)
    session = SessionRow(
        id="s", project_id="p", created_by="o", working_directory="/", dsl_hash="h"
    )
    with pytest.raises(Unavailable, match="may be repeated"):
        await asked.send(session, "end", Command(command_id="c", user_id="o"))
