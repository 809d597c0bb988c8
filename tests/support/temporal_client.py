"""Stands in for temporalio's client: plays one answer or failure after the other."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any, cast

from temporalio.client import (
    Client,
    WorkflowUpdateFailedError,
    WorkflowUpdateRPCTimeoutOrCancelledError,
)
from temporalio.exceptions import ApplicationError
from temporalio.service import RPCError, RPCStatusCode

from holdfast.settings.environment import Settings
from holdfast.temporal.connection import Connection

HANG = "hang"


class ClientDouble:
    """Answers each attempt with the next of `plays`."""

    def __init__(self, *plays: Any) -> None:
        self.plays = list(plays)
        self.ids: list[str] = []
        self.was_asked = asyncio.Event()

    def connection(self, home: Path) -> Connection:
        """A connection that is made already, to this client."""
        return Connection(Settings(home=home), cast(Client, self))

    async def execute_update_with_start_workflow(self, name: str, arg: object, **how: Any) -> Any:
        """One attempt."""
        self.ids.append(how["id"])
        self.was_asked.set()
        play = self.plays.pop(0)
        if play == HANG:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                # As the real client does, which would swallow a timeout around it.
                raise WorkflowUpdateRPCTimeoutOrCancelledError from None
        if isinstance(play, Exception):
            raise play
        return play


def rpc(status: RPCStatusCode) -> RPCError:
    """What the service answers with when it cannot."""
    return RPCError("scripted", status, b"")


def failed(kind: str, *details: Any) -> WorkflowUpdateFailedError:
    """What a workflow answers with when it refuses, or breaks."""
    return WorkflowUpdateFailedError(ApplicationError("words", *details, type=kind))
