"""Who runs and who waits: decided when a message arrives, and never undone behind one's back."""

from __future__ import annotations

import asyncio

import pytest

from holdfast.domain.errors import Conflict
from holdfast.storage.database.engine import Db
from holdfast.storage.database.rows import change
from holdfast.storage.database.tables import Operator, SessionRow
from holdfast.storage.projects import operators
from holdfast.storage.sessions import sessions
from tests.support.local_worker import LocalWorker, script

HANGING = script({"hang_s": 60})


async def fill(worker: LocalWorker, count: int = 4) -> list[str]:
    """Sessions that run and go on running."""
    busy = [worker.session() for _ in range(count)]
    await asyncio.gather(*(worker.send(session, HANGING) for session in busy))
    return busy


@pytest.mark.req("K-013", "K-014", "K-015", "K-030", "K-037", "K-119", "K-120", "K-121", "K-145")
async def test_the_fifth_of_a_project_is_created_and_its_message_queued(
    worker: LocalWorker,
) -> None:
    await fill(worker)
    session = worker.session()
    answer = await worker.send(session, "hello")
    assert (answer.state, answer.queued, answer.reason) == ("queued", True, "concurrency_limit")
    waiting = worker.run_row(answer.run_id or "")
    assert (waiting.state, waiting.started_at) == ("pending", None)
    assert worker.texts(session) == ["hello"]
    queued = await worker.event(session, "session.queued")
    assert (queued.data["reason"], queued.data["running_count"], queued.data["limit"]) == (
        "per_project",
        4,
        4,
    )
    moved = await worker.event(session, "session.state")
    assert (moved.data["queued"], moved.data["reason"]) == (True, "concurrency_limit")


@pytest.mark.req("K-016", "K-029", "K-122", "K-145")
async def test_a_queued_message_waits_for_a_slot_and_for_the_operator(worker: LocalWorker) -> None:
    busy = await fill(worker)
    session = worker.session()
    run = (await worker.send(session, "hello")).run_id or ""
    with pytest.raises(Conflict, match="no free slot"):
        await worker.resume(session)
    await worker.cancel(busy[0])
    await worker.state(busy[0], "idle")
    assert worker.row(session).state == "queued"  # nothing starts by itself
    resumed = await worker.resume(session)
    assert (resumed.state, resumed.run_id) == ("running", run)
    assert (await worker.over(run)).state == "done"
    assert worker.texts(session) == ["hello", "You said: hello"]
    assert "session.resumed_from_queue" in worker.kinds(session)


@pytest.mark.req("K-017", "K-027", "K-145")
async def test_a_discarded_message_no_longer_counts(worker: LocalWorker) -> None:
    busy = await fill(worker)
    session = worker.session()
    run = (await worker.send(session, "never mind")).run_id or ""
    assert (await worker.plain(session, "discard")).state == "idle"
    assert worker.run_row(run).state == "cancelled"
    assert worker.texts(session) == []
    assert [one.content for one in worker.messages(session, all_of_them=True)] == ["never mind"]
    with pytest.raises(Conflict):
        await worker.plain(session, "discard")
    await worker.cancel(busy[0])
    await worker.state(busy[0], "idle")
    assert (await worker.run(session, "rather this")).state == "done"


@pytest.mark.req("K-121", "K-145")
async def test_a_queued_session_takes_no_second_message(worker: LocalWorker) -> None:
    await fill(worker)
    session = worker.session()
    await worker.send(session, "one")
    with pytest.raises(Conflict, match="queued"):
        await worker.send(session, "two")
    assert worker.texts(session) == ["one"]


@pytest.mark.req("K-123", "K-145")
async def test_a_pause_frees_its_slot_and_a_resume_needs_one(worker: LocalWorker) -> None:
    busy = await fill(worker)
    paused = await worker.pause(busy[0])
    other = worker.session()
    answer = await worker.send(other, HANGING)
    assert answer.state == "running"
    with pytest.raises(Conflict, match="no free slot"):
        await worker.resume(busy[0], paused.checkpoint_id)
    assert worker.row(busy[0]).state == "paused"
    await worker.cancel(other)
    await worker.state(other, "idle")
    assert (await worker.resume(busy[0], paused.checkpoint_id)).state == "running"


@pytest.mark.req("K-119", "K-145")
async def test_the_seventeenth_of_an_operator_is_queued(worker: LocalWorker) -> None:
    """Fifteen run by the book, so that one more fits and the next does not."""
    projects = [worker.project() for _ in range(5)]
    running = [worker.session(project) for project in projects[:4] for _ in range(4)][:15]

    def mark(db: Db) -> None:
        change(db, Operator, worker.operator_id, running_limit=None)
        for session in running:
            change(db, SessionRow, session, state="running")

    worker.store.write(mark)
    sixteenth, seventeenth = worker.session(projects[4]), worker.session(projects[4])
    assert (await worker.send(sixteenth, HANGING)).state == "running"
    assert (await worker.send(seventeenth, "hello")).state == "queued"
    queued = await worker.event(seventeenth, "session.queued")
    assert (queued.data["reason"], queued.data["running_count"], queued.data["limit"]) == (
        "per_operator",
        16,
        16,
    )


@pytest.mark.req("K-119")
def test_an_operator_may_have_a_limit_of_its_own(worker: LocalWorker) -> None:
    own = worker.store.write(lambda db: operators.add(db, "busy-one", running_limit=2).id)
    assert worker.store.read(lambda db: sessions.operator_slots(db, own)) == (0, 2)


@pytest.mark.req("K-125")
async def test_every_start_and_end_tells_how_many_run(worker: LocalWorker) -> None:
    busy = await fill(worker, 1)
    session = worker.session()
    await worker.run(session, "hello")
    counts = [one.data for one in worker.events(session) if one.kind == "sessions.running_count"]
    assert [(one["running"], one["operator_running"], one["limit"]) for one in counts] == [
        (2, 2, 4),
        (1, 1, 4),
    ]
    await worker.cancel(busy[0])


@pytest.mark.req("K-035", "K-124", "K-144")
async def test_of_two_messages_at_once_one_is_taken_and_one_refused(worker: LocalWorker) -> None:
    session = worker.session()
    answers = await asyncio.gather(
        worker.send(session, HANGING), worker.send(session, HANGING), return_exceptions=True
    )
    refused = [one for one in answers if isinstance(one, Conflict)]
    taken = [one for one in answers if not isinstance(one, BaseException)]
    assert (len(refused), len(taken)) == (1, 1)
    assert worker.row(session).run_count == 1
    assert len(worker.texts(session)) == 1
