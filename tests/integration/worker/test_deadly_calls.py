"""A tool call that kills its worker: tried twice, then answered in words. Real SIGKILLs."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from holdfast.agent.tools.outcome import ToolOutcome
from tests.support.local_worker import LocalWorker, script
from tests.support.stored_rows import tool_calls_of
from workflows import steps


async def serve_until_killed(worker: LocalWorker, ready: asyncio.Event) -> None:
    """A worker of its own process, until a call ends it."""
    settings = worker.settings
    mine = {
        "HOLDFAST_HOME": str(settings.home),
        "HOLDFAST_TEMPORAL_ADDRESS": settings.temporal_address,
        "HOLDFAST_TASK_QUEUE": settings.task_queue,
        "HOLDFAST_TERMINAL_SOCKET": str(settings.terminal_socket),
    }
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.support.attackers.deadly_tool_worker"),
        cwd=Path(__file__).parents[3],
        env={**os.environ, **mine},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    assert process.stdout is not None
    try:
        async with asyncio.timeout(240):
            async for line in process.stdout:
                if b"worker.ready" in line:
                    ready.set()
            assert await process.wait() == -signal.SIGKILL
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def test_a_call_that_killed_two_workers_is_answered_and_the_run_goes_on(
    worker: LocalWorker,
) -> None:
    await worker.stop_worker()
    session, other = worker.session(), worker.session()
    folder = Path(worker.row(session).working_directory)
    (folder / "deadly").write_text("x")
    deadly = script({"call": "read_file", "arguments": {"path": "deadly"}}, {"say": "over"})
    ready = asyncio.Event()
    first = asyncio.create_task(serve_until_killed(worker, ready))
    await ready.wait()
    run = (await worker.send(session, deadly)).run_id or ""
    await first
    await serve_until_killed(worker, ready)
    third = asyncio.create_task(serve_until_killed(worker, ready))
    try:
        assert (await worker.over(run)).state == "done"
        assert (await worker.run(other, "hello")).state == "done"
        assert not third.done(), "the third worker lives"
    finally:
        third.cancel()
        await asyncio.gather(third, return_exceptions=True)
        await worker.start_worker()
    (call,) = worker.store.read(lambda db: tool_calls_of(db, run))
    assert call.state == "failed"
    assert "ended its worker twice and is not tried again" in str(call.output)
    assert worker.texts(session)[-1] == "over"


async def test_an_attempt_that_fails_without_a_death_does_not_count_as_one(
    worker: LocalWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    soon = timedelta(milliseconds=20)
    quick = replace(steps.call_tool, first_wait=soon, longest_wait=soon)
    monkeypatch.setattr(steps, "call_tool", quick)
    tried = 0

    def failing(*_: object) -> ToolOutcome:
        nonlocal tried
        tried += 1
        if tried <= 4:
            raise OSError("the machine has a bad moment")
        return ToolOutcome("read at last")

    monkeypatch.setattr("activities.tools.runners.run_file_tool", failing)
    call = {"call": "read_file", "arguments": {"path": "x"}}
    run = await worker.run(worker.session(), script(call))
    assert run.state == "done"
    (made,) = worker.store.read(lambda db: tool_calls_of(db, run.id))
    assert made.output == "read at last"
    assert tried == 5
