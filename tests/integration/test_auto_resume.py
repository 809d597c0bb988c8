"""`auto_resume: true`: what is queued starts by itself, in turn, whoever died meanwhile."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest
from temporalio.client import WorkflowUpdateFailedError

from domain.commands import Resume
from domain.ids import new_id
from storage import queue
from tests.support.library import Shelf
from tests.support.rig import Rig, script
from worker.queue import start_forever, start_waiting
from worker.sending import send

HANGING = script({"hang_s": 60})
ONE_SLOT = "primary: {model: 'scripted:echo'}\nlimits: {running_sessions: 1}\n"
BY_ITSELF = ONE_SLOT + "auto_resume: true\n"


@contextlib.asynccontextmanager
async def watched(rig: Rig) -> AsyncIterator[None]:
    """The loop that the worker runs beside its steps."""
    loop = asyncio.create_task(start_forever(rig.client, rig.settings, rig.store, every_s=0.02))
    try:
        yield
    finally:
        loop.cancel()
        await asyncio.gather(loop, return_exceptions=True)


async def busy_project(rig: Rig, text: str) -> tuple[str, str]:
    """A project with one slot, and the session that holds it."""
    project = rig.project(text)
    holder = rig.session(project)
    await rig.send(holder, HANGING)
    return project, holder


@pytest.mark.req("K-122")
async def test_queued_sessions_start_by_themselves_one_after_the_other(rig: Rig) -> None:
    project, holder = await busy_project(rig, BY_ITSELF)
    waiting = [rig.session(project) for _ in range(3)]
    async with watched(rig):
        runs = [(await rig.send(one, "hello")).run_id or "" for one in waiting]
        assert {rig.row(one).state for one in waiting} == {"queued"}
        await rig.cancel(holder)
        ended = [await rig.over(run) for run in runs]
    assert [run.state for run in ended] == ["done"] * 3
    starts = [run.started_at or 0 for run in ended]
    assert starts == sorted(starts)  # who came first starts first
    moved = [one.data for one in rig.events(waiting[0]) if one.kind == "session.state"]
    assert [one["trigger"] for one in moved] == ["message", "auto_resume", "run.done"]
    assert "session.resumed_from_queue" in rig.kinds(waiting[0])


@pytest.mark.req("K-122")
async def test_without_the_word_nothing_starts_by_itself(rig: Rig) -> None:
    project, holder = await busy_project(rig, ONE_SLOT)
    session = rig.session(project)
    await rig.send(session, "hello")
    await rig.cancel(holder)
    await rig.state(holder, "idle")
    assert await start_waiting(rig.client, rig.settings, rig.store) == 0
    assert rig.row(session).state == "queued"


@pytest.mark.req("K-122")
async def test_who_waits_is_found_after_worker_and_workflow_were_lost(rig: Rig) -> None:
    project, holder = await busy_project(rig, BY_ITSELF)
    session = rig.session(project)
    run = (await rig.send(session, "hello")).run_id or ""
    await rig.cancel(holder)
    await rig.state(holder, "idle")
    await rig.stop_worker()
    await rig.handle(session).terminate("lost")
    await rig.start_worker()
    async with watched(rig):
        assert (await rig.over(run)).state == "done"
    assert rig.texts(session) == ["hello", "You said: hello"]


@pytest.mark.req("K-122")
async def test_what_was_seen_waiting_never_resumes_a_session_that_is_paused_by_now(
    rig: Rig,
) -> None:
    session = rig.session()
    run = (await rig.send(session, HANGING)).run_id
    await rig.pause(session)
    late = Resume(command_id=new_id(), user_id=rig.operator_id, queued_run=run)
    with pytest.raises(WorkflowUpdateFailedError):
        await send(rig.client, rig.settings.task_queue, session, "resume", late)
    assert rig.row(session).state == "paused"
    await rig.cancel(session)


@pytest.mark.req("K-122")
async def test_a_full_operator_holds_nobody_else_up(rig: Rig) -> None:
    project, _ = await busy_project(rig, BY_ITSELF)
    other, holder = await busy_project(rig, BY_ITSELF)
    for place in (project, other, other):
        await rig.send(rig.session(place), "hello")
    assert rig.store.read(queue.startable) == []
    await rig.cancel(holder)
    await rig.state(holder, "idle")
    startable = rig.store.read(queue.startable)
    assert [one.project_id for one in startable] == [other]  # one slot, so one of the two


def test_nobody_waits_where_nothing_is_queued(shelf: Shelf) -> None:
    assert shelf.store.read(queue.startable) == []
