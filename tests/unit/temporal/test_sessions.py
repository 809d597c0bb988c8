"""Commands: the same id is sent again until the session answers; a refusal is an answer."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any, cast

import pytest
from temporalio.client import (
    Client,
    WorkflowUpdateFailedError,
    WorkflowUpdateRPCTimeoutOrCancelledError,
)
from temporalio.exceptions import ApplicationError
from temporalio.service import RPCError, RPCStatusCode

from holdfast.domain.commands import Answer, Command
from holdfast.domain.errors import Conflict, Gone, Unavailable
from holdfast.settings.environment import Settings
from holdfast.storage.database.tables import SessionRow
from holdfast.temporal.connection import Connection
from holdfast.temporal.sessions import SessionWorkflows
from holdfast.temporal.updates import WorkflowBroken

SESSION = SessionRow(
    id="S", project_id="P", created_by="O", working_directory="/tmp", dsl_hash="h", title="t"
)
ANSWER = Answer(state="running")


class ClientDouble:
    """Answers each attempt with the next of `plays`."""

    def __init__(self, *plays: Any) -> None:
        self.plays = list(plays)
        self.ids: list[str] = []

    async def execute_update_with_start_workflow(self, name: str, arg: Command, **how: Any) -> Any:
        self.ids.append(how["id"])
        play = self.plays.pop(0)
        if play == "hang":
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                # As the real client does, which would swallow a timeout around it.
                raise WorkflowUpdateRPCTimeoutOrCancelledError from None
        if isinstance(play, Exception):
            raise play
        return play


def workflows(tmp_path: Path, client: ClientDouble, timeout_s: float = 15.0) -> SessionWorkflows:
    connection = Connection(Settings(home=tmp_path), cast(Client, client))
    return SessionWorkflows(connection, answer_timeout_s=timeout_s)


def rpc(status: RPCStatusCode) -> RPCError:
    return RPCError("scripted", status, b"")


def failed(kind: str, *details: Any) -> WorkflowUpdateFailedError:
    return WorkflowUpdateFailedError(ApplicationError("words", *details, type=kind))


async def test_what_passes_is_sent_again_under_the_same_id(tmp_path: Path) -> None:
    client = ClientDouble(
        rpc(RPCStatusCode.UNAVAILABLE),
        rpc(RPCStatusCode.FAILED_PRECONDITION),
        WorkflowUpdateRPCTimeoutOrCancelledError(),
        failed("AcceptedUpdateCompletedWorkflow"),
        ANSWER,
    )
    answer = await workflows(tmp_path, client).send(SESSION, "end", Command(command_id="C"))
    assert answer == ANSWER
    assert client.ids == ["C"] * 5


async def test_a_refusal_comes_back_as_it_was_raised(tmp_path: Path) -> None:
    details = {"state": "running"}
    client = ClientDouble(failed("conflict", details), failed("gone"))
    asked = workflows(tmp_path, client)
    with pytest.raises(Conflict) as refused:
        await asked.send(SESSION, "message", Command(command_id="C"))
    assert (refused.value.message, refused.value.details) == ("words", details)
    with pytest.raises(Gone):
        await asked.send(SESSION, "message", Command(command_id="D"))


async def test_what_is_no_refusal_is_a_defect(tmp_path: Path) -> None:
    asked = workflows(tmp_path, ClientDouble(failed("RuntimeError"), rpc(RPCStatusCode.INTERNAL)))
    with pytest.raises(WorkflowBroken):
        await asked.send(SESSION, "end", Command(command_id="C"))
    with pytest.raises(RPCError):
        await asked.send(SESSION, "end", Command(command_id="C"))


@pytest.mark.parametrize("plays", [["hang"], [rpc(RPCStatusCode.UNAVAILABLE)] * 99])
async def test_without_an_answer_it_gives_up_in_time(tmp_path: Path, plays: list[Any]) -> None:
    asked = workflows(tmp_path, ClientDouble(*plays), timeout_s=0.2)
    with pytest.raises(Unavailable):
        await asked.send(SESSION, "end", Command(command_id="C"))
