"""A shell's long output: the model reads its end and its code, and everything is kept."""

from __future__ import annotations

import json
from typing import Any

import pytest

from holdfast.domain.commands import Command
from holdfast.domain.ids import new_id
from holdfast.storage.database.blobs import BlobMissing
from holdfast.storage.database.tables import ToolCallRow
from holdfast.storage.upkeep import removal
from tests.support.local_worker import LocalWorker, script
from tests.support.stored_rows import tool_calls_of

UNCAGED = "primary: {model: 'scripted:echo', cage: disabled}\n"


async def shell(worker: LocalWorker, command: str) -> tuple[str, ToolCallRow, dict[str, Any]]:
    """The session, the call, and its result as the model reads it."""
    session = worker.session(worker.project(UNCAGED))
    steps = script({"call": "shell", "arguments": {"command": command}}, {"say": "Seen."})
    run = await worker.run(session, steps)
    (call,) = worker.store.read(lambda db: tool_calls_of(db, run.id))
    (read,) = [one.content for one in worker.messages(session) if one.role == "tool"]
    return session, call, json.loads(read)


@pytest.mark.req("K-038")
async def test_the_end_reaches_the_model_and_everything_is_kept(worker: LocalWorker) -> None:
    _, call, result = await shell(worker, "seq 1 20000; exit 3")
    assert (result["exit_code"], result["truncated"]) == (3, True)
    assert result["output"].endswith("19999\n20000\n")
    assert 32_000 < len(result["output"]) <= 32 * 1024
    whole = "".join(f"{number}\n" for number in range(1, 20001)).encode()
    assert worker.store.blobs.read(result["output_ref"]) == whole
    assert (result["total_bytes"], call.output_ref) == (len(whole), result["output_ref"])


@pytest.mark.req("K-038")
async def test_an_end_that_json_blows_up_is_shorter_and_still_the_end(worker: LocalWorker) -> None:
    _, call, result = await shell(
        worker, "head -c 30000 /dev/zero | tr '\\0' '\\001'; echo the end"
    )
    assert result["exit_code"] == 0
    assert result["output"].endswith("the end\n")
    assert result["truncated"]
    assert len(worker.store.blobs.read(str(call.output_ref))) == 30_000 + len("the end\n")


async def test_a_purge_takes_the_whole_output_with_it(worker: LocalWorker) -> None:
    session, call, _ = await shell(worker, "seq 1 9000")
    await worker.state(session, "idle")
    await worker.command(session, "end", Command(command_id=new_id(), user_id=worker.operator_id))
    await worker.state(session, "ended")
    removal.purge(worker.store, session)
    with pytest.raises(BlobMissing):
        worker.store.blobs.read(str(call.output_ref))
