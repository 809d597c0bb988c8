"""Commands: the same id is sent again until the session answers; a refusal is an answer."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from temporalio.client import WorkflowUpdateRPCTimeoutOrCancelledError
from temporalio.service import RPCError, RPCStatusCode

from holdfast.domain.commands import Answer, Command
from holdfast.domain.errors import Conflict, Gone, Unavailable
from holdfast.storage.database.tables import SessionRow
from holdfast.temporal.sessions import SessionWorkflows
from holdfast.temporal.updates import WorkflowBroken
from tests.support.temporal_client import HANG, ClientDouble, failed, rpc

SESSION = SessionRow(
    id="S", project_id="P", created_by="O", working_directory="/tmp", dsl_hash="h", title="t"
)
ANSWER = Answer(state="running")


def workflows(tmp_path: Path, client: ClientDouble, timeout_s: float = 15.0) -> SessionWorkflows:
    return SessionWorkflows(client.connection(tmp_path), answer_timeout_s=timeout_s)


async def test_what_passes_is_sent_again_under_the_same_id(tmp_path: Path) -> None:
    client = ClientDouble(
        rpc(RPCStatusCode.UNAVAILABLE),
        rpc(RPCStatusCode.FAILED_PRECONDITION),
        RuntimeError("the client could not connect"),
        WorkflowUpdateRPCTimeoutOrCancelledError(),
        failed("AcceptedUpdateCompletedWorkflow"),
        ANSWER,
    )
    answer = await workflows(tmp_path, client).send(SESSION, "end", Command(command_id="C"))
    assert answer == ANSWER
    assert client.ids == ["C"] * 6


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
    with pytest.raises(WorkflowBroken, match=r"^RuntimeError: words$"):
        await asked.send(SESSION, "end", Command(command_id="C"))
    with pytest.raises(RPCError):
        await asked.send(SESSION, "end", Command(command_id="C"))


@pytest.mark.parametrize("plays", [[HANG], [rpc(RPCStatusCode.UNAVAILABLE)] * 99])
async def test_without_an_answer_it_gives_up_in_time(tmp_path: Path, plays: list[Any]) -> None:
    asked = workflows(tmp_path, ClientDouble(*plays), timeout_s=0.2)
    with pytest.raises(Unavailable, match="may be repeated"):
        await asked.send(SESSION, "end", Command(command_id="C"))


async def test_a_request_that_nobody_waits_for_is_not_sent_again(tmp_path: Path) -> None:
    client = ClientDouble(HANG, HANG)
    asked = workflows(tmp_path, client, timeout_s=60.0)
    sending = asyncio.create_task(asked.send(SESSION, "end", Command(command_id="C")))
    await client.was_asked.wait()
    sending.cancel()
    with pytest.raises(asyncio.CancelledError):
        await sending
    left = asyncio.all_tasks() - {asyncio.current_task()}
    await asyncio.wait_for(asyncio.gather(*left, return_exceptions=True), 60.0)
    assert client.ids == ["C"]
