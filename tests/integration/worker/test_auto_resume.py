"""`auto_resume: true`: what is queued starts by itself, in turn, whoever died meanwhile."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest

from holdfast.domain.commands import Resume
from holdfast.domain.errors import Conflict
from holdfast.domain.ids import new_id
from holdfast.storage.upkeep import queue
from tests.support.local_worker import LocalWorker, script
from tests.support.sample_library import SampleLibrary
from worker.queue import start_forever, start_waiting

HANGING = script({"hang_s": 60})
ONE_SLOT = "primary: {model: 'scripted:echo'}\nlimits: {running_sessions: 1}\n"
BY_ITSELF = ONE_SLOT + "auto_resume: true\n"


@contextlib.asynccontextmanager
async def watched(worker: LocalWorker) -> AsyncIterator[None]:
    """The loop that the worker runs beside its steps."""
    loop = asyncio.create_task(start_forever(worker.sessions, worker.store, every_s=0.02))
    try:
        yield
    finally:
        loop.cancel()
        await asyncio.gather(loop, return_exceptions=True)


async def busy_project(worker: LocalWorker, text: str) -> tuple[str, str]:
    """A project with one slot, and the session that holds it."""
    project = worker.project(text)
    holder = worker.session(project)
    await worker.send(holder, HANGING)
    return project, holder


@pytest.mark.req("K-122")
async def test_queued_sessions_start_by_themselves_one_after_the_other(worker: LocalWorker) -> None:
    project, holder = await busy_project(worker, BY_ITSELF)
    waiting = [worker.session(project) for _ in range(3)]
    async with watched(worker):
        runs = [(await worker.send(one, "hello")).run_id or "" for one in waiting]
        assert {worker.row(one).state for one in waiting} == {"queued"}
        await worker.cancel(holder)
        ended = [await worker.over(run) for run in runs]
    assert [run.state for run in ended] == ["done"] * 3
    starts = [run.started_at or 0 for run in ended]
    assert starts == sorted(starts)  # who came first starts first
    moved = [one.data for one in worker.events(waiting[0]) if one.kind == "session.state"]
    assert [one["trigger"] for one in moved] == ["message", "auto_resume", "run.done"]
    assert "session.resumed_from_queue" in worker.kinds(waiting[0])


@pytest.mark.req("K-122")
async def test_without_the_word_nothing_starts_by_itself(worker: LocalWorker) -> None:
    project, holder = await busy_project(worker, ONE_SLOT)
    session = worker.session(project)
    await worker.send(session, "hello")
    await worker.cancel(holder)
    await worker.state(holder, "idle")
    assert await start_waiting(worker.sessions, worker.store) == 0
    assert worker.row(session).state == "queued"


@pytest.mark.req("K-122")
async def test_who_waits_is_found_after_worker_and_workflow_were_lost(worker: LocalWorker) -> None:
    project, holder = await busy_project(worker, BY_ITSELF)
    session = worker.session(project)
    run = (await worker.send(session, "hello")).run_id or ""
    await worker.cancel(holder)
    await worker.state(holder, "idle")
    await worker.stop_worker()
    await worker.handle(session).terminate("lost")
    await worker.start_worker()
    async with watched(worker):
        assert (await worker.over(run)).state == "done"
    assert worker.texts(session) == ["hello", "You said: hello"]


@pytest.mark.req("K-122")
async def test_what_was_seen_waiting_never_resumes_a_session_that_is_paused_by_now(
    worker: LocalWorker,
) -> None:
    session = worker.session()
    run = (await worker.send(session, HANGING)).run_id
    await worker.pause(session)
    late = Resume(command_id=new_id(), user_id=worker.operator_id, queued_run=run)
    with pytest.raises(Conflict):
        await worker.command(session, "resume", late)
    assert worker.row(session).state == "paused"
    await worker.cancel(session)


@pytest.mark.req("K-122")
async def test_a_full_operator_holds_nobody_else_up(worker: LocalWorker) -> None:
    project, _ = await busy_project(worker, BY_ITSELF)
    other, holder = await busy_project(worker, BY_ITSELF)
    for place in (project, other, other):
        await worker.send(worker.session(place), "hello")
    assert worker.store.read(queue.startable) == []
    await worker.cancel(holder)
    await worker.state(holder, "idle")
    startable = worker.store.read(queue.startable)
    assert [one.project_id for one in startable] == [other]  # one slot, so one of the two


def test_nobody_waits_where_nothing_is_queued(library: SampleLibrary) -> None:
    assert library.store.read(queue.startable) == []
