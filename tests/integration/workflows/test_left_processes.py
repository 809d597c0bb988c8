"""What a session left running is killed when its run is cancelled, and when it ends or fails."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from holdfast.domain.ids import new_id
from holdfast.storage.sessions import runs
from holdfast.terminal.client import TerminalClient
from holdfast.terminal.records import Reason, SpawnRequest
from tests.support.blob_files import damage_prompt
from tests.support.local_worker import LocalWorker, script
from tests.support.servers.terminal_hosts import TestHost

HANGING = script({"hang_s": 60})
DEADLINE_S = 45.0


class Left:
    """Processes on the session's machine that no step waits for."""

    def __init__(self, client: TerminalClient) -> None:
        self._client = client

    async def start(self, session_id: str, run_id: str | None = None) -> str:
        """A process that goes on until it is killed; its key."""
        request = SpawnRequest(
            key=new_id(), session_id=session_id, run_id=run_id, argv=("/bin/sleep", "1000")
        )
        return (await self._client.spawn(request)).key

    async def is_alive(self, key: str) -> bool:
        """Whether it has not ended."""
        return (await self._client.info(key)).exit is None

    async def killed(self, key: str) -> Reason:
        """Wait until it is over; why."""
        return (await asyncio.wait_for(self._client.wait(key), DEADLINE_S)).reason


@pytest.fixture
async def left(spare_host: TestHost) -> AsyncIterator[Left]:
    async with await TerminalClient.connect(
        spare_host.socket, state_dir=spare_host.state, start=False
    ) as client:
        yield Left(client)


@pytest.mark.req("K-033", "K-024")
async def test_a_session_that_fails_leaves_no_process(worker: LocalWorker, left: Left) -> None:
    session = worker.session()
    damage_prompt(worker.store, session)
    key = await left.start(session)
    await worker.send(session, "hello")
    await worker.state(session, "failed")
    assert await left.killed(key) is Reason.CANCELLED


@pytest.mark.req("K-032")
async def test_a_session_that_ends_leaves_no_process(worker: LocalWorker, left: Left) -> None:
    session = worker.session()
    await worker.send(session, HANGING)
    key = await left.start(session)
    await worker.plain(session, "end")
    assert await left.killed(key) is Reason.CANCELLED


@pytest.mark.req("K-041")
async def test_a_cancelled_run_leaves_no_process(worker: LocalWorker, left: Left) -> None:
    session = worker.session()
    run = (await worker.send(session, HANGING)).run_id or ""
    key = await left.start(session, run)
    await worker.cancel(session)
    assert await left.killed(key) is Reason.CANCELLED
    assert (await worker.over(run)).state == "cancelled"


async def test_what_was_cancelled_while_its_machine_was_away_is_killed_when_it_is_back(
    worker: LocalWorker, left: Left
) -> None:
    session, other = worker.session(), worker.session()
    run = (await worker.by_the_book(session, HANGING)).run_id
    kept_run = (await worker.by_the_book(other, HANGING)).run_id
    cancelled, kept = await left.start(session, run), await left.start(other, kept_run)
    await worker.stop_worker()
    # As when the step that kills was given up: nobody asks this machine any more.
    worker.store.write(lambda db: runs.close(db, run, state="cancelled"))
    await worker.start_worker()
    assert await left.killed(cancelled) is Reason.CANCELLED
    assert await left.is_alive(kept)
