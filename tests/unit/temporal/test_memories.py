"""Syncs of a memory: what no answer means, and what a round that broke is told as."""

from __future__ import annotations

from pathlib import Path

import pytest
from temporalio.client import WorkflowUpdateFailedError
from temporalio.exceptions import CancelledError
from temporalio.service import RPCStatusCode

from holdfast.domain.errors import Conflict, Unavailable
from holdfast.domain.memory import SyncReport
from holdfast.domain.memory_steps import MemoryAnswer
from holdfast.temporal import memories
from holdfast.temporal.memories import MemoryWorkflows
from tests.support.temporal_client import HANG, ClientDouble, failed, rpc

REPORT = SyncReport(files=3)


async def sync(client: ClientDouble, home: Path, *, wait_s: float = 15.0) -> SyncReport | None:
    workflows = MemoryWorkflows(client.connection(home))
    return await workflows.sync("P", command_id="C", force=False, wait_s=wait_s)


async def test_a_lost_sync_is_asked_for_again_under_the_same_id(tmp_path: Path) -> None:
    client = ClientDouble(
        failed("AcceptedUpdateCompletedWorkflow"),
        rpc(RPCStatusCode.UNAVAILABLE),
        MemoryAnswer(report=REPORT),
    )
    assert await sync(client, tmp_path) == REPORT
    assert client.ids == ["C"] * 3


async def test_a_sync_that_takes_longer_goes_on_without_its_caller(tmp_path: Path) -> None:
    assert await sync(ClientDouble(HANG), tmp_path, wait_s=0.1) is None


@pytest.mark.parametrize("away", [rpc(RPCStatusCode.UNAVAILABLE), RuntimeError("no connection")])
async def test_a_sync_that_nobody_heard_is_not_said_to_go_on(
    tmp_path: Path, away: Exception
) -> None:
    with pytest.raises(Unavailable, match="may be repeated"):
        await sync(ClientDouble(*[away] * 99), tmp_path, wait_s=0.2)


async def test_temporal_is_waited_for_only_as_long_as_a_start_takes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memories, "AWAY_S", 0.0)
    client = ClientDouble(*[rpc(RPCStatusCode.UNAVAILABLE)] * 99)
    with pytest.raises(Unavailable):
        await sync(client, tmp_path, wait_s=60.0)
    assert len(client.ids) <= 2


async def test_a_round_that_failed_is_a_refusal_with_its_words(tmp_path: Path) -> None:
    with pytest.raises(Unavailable, match=r"^words$"):
        await sync(ClientDouble(failed("unavailable")), tmp_path)
    with pytest.raises(Conflict, match=r"^words$"):
        await sync(ClientDouble(failed("OSError")), tmp_path)


async def test_a_sync_that_was_cancelled_is_said_to_be_broken_off(tmp_path: Path) -> None:
    ended = WorkflowUpdateFailedError(CancelledError("from the Temporal UI"))
    with pytest.raises(Unavailable, match="broken off"):
        await sync(ClientDouble(ended), tmp_path)
