"""Two builds side by side: a session stays with its build until it begins a new history."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta

from holdfast.supervisor.temporal import binary
from tests.support.local_worker import DEADLINE_S, LocalWorker
from worker.main import make_worker


@asynccontextmanager
async def build(worker: LocalWorker, build_id: str) -> AsyncIterator[None]:
    """A worker of that build on the same queue."""
    assert worker._parts is not None
    serving = make_worker(
        worker.client,
        worker.settings.task_queue,
        worker._parts,
        grace=timedelta(),
        build_id=build_id,
    )
    async with serving:
        yield


async def temporal_says(worker: LocalWorker, *arguments: str) -> str:
    """The command line of Temporal itself, as docs/fleet.md shows it."""
    where = ["--address", worker.settings.temporal_address]

    def run() -> str:
        done = subprocess.run(
            [binary(), *arguments, *where], capture_output=True, text=True, check=False, timeout=60
        )
        return done.stdout + done.stderr if done.returncode else done.stdout or "done"

    return await asyncio.to_thread(run)


async def set_current(worker: LocalWorker, build_id: str) -> None:
    """The recipe's second step; the server knows a build as soon as its worker has polled."""
    async with asyncio.timeout(DEADLINE_S):
        while "Successfully" not in (
            said := await temporal_says(
                worker,
                *("worker", "deployment", "set-current-version", "--yes"),
                *("--deployment-name", worker.settings.task_queue, "--build-id", build_id),
            )
        ):
            assert "flag" not in said, said
            await asyncio.sleep(0.1)


async def builds_at_work(worker: LocalWorker, session_id: str) -> list[str]:
    """Which builds took decisions of the session's newest history, in their order."""
    handle = worker.client.get_workflow_handle(session_id)
    found: list[str] = []
    async for event in handle.fetch_history_events():
        version = event.workflow_task_completed_event_attributes.deployment_version.build_id
        if version and (not found or found[-1] != version):
            found.append(version)
    return found


async def moved(worker: LocalWorker, session_id: str, build_id: str) -> None:
    """Wake the session, as often as it takes: the server spreads the news with a delay."""
    handle = worker.client.get_workflow_handle(session_id)
    async with asyncio.timeout(DEADLINE_S):
        while True:
            await handle.signal("rollover")
            if await builds_at_work(worker, session_id) == [build_id]:
                return
            await asyncio.sleep(0.2)


async def test_an_idle_session_moves_to_the_newer_build_when_it_is_told_to(
    worker: LocalWorker,
) -> None:
    await worker.stop_worker()
    async with build(worker, "d1"):
        await set_current(worker, "d1")
        session = worker.session()
        await worker.run(session, "first")
        assert await builds_at_work(worker, session) == ["d1"]
        async with build(worker, "d2"):
            await set_current(worker, "d2")
            await worker.run(session, "second")
            await moved(worker, session, "d2")
    async with build(worker, "d2"):
        await worker.run(session, "third")
        assert await builds_at_work(worker, session) == ["d2"]
    said = [text for text in worker.texts(session) if text in ("first", "second", "third")]
    assert [*dict.fromkeys(said)] == ["first", "second", "third"]
