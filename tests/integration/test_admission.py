"""Who runs and who waits: decided when a message arrives, and never undone behind one's back."""

from __future__ import annotations

import asyncio

import pytest

from domain.errors import Conflict
from storage import operators, sessions
from storage.engine import Db
from storage.rows import change
from storage.tables import Operator, SessionRow
from tests.support.rig import Rig, script

HANGING = script({"hang_s": 60})


async def fill(rig: Rig, count: int = 4) -> list[str]:
    """Sessions that run and go on running."""
    busy = [rig.session() for _ in range(count)]
    await asyncio.gather(*(rig.send(session, HANGING) for session in busy))
    return busy


@pytest.mark.req("K-013", "K-014", "K-015", "K-030", "K-037", "K-119", "K-120", "K-121", "K-145")
async def test_the_fifth_of_a_project_is_created_and_its_message_queued(rig: Rig) -> None:
    await fill(rig)
    session = rig.session()
    answer = await rig.send(session, "hello")
    assert (answer.state, answer.queued, answer.reason) == ("queued", True, "concurrency_limit")
    waiting = rig.run_row(answer.run_id or "")
    assert (waiting.state, waiting.started_at) == ("pending", None)
    assert rig.texts(session) == ["hello"]
    queued = await rig.event(session, "session.queued")
    assert (queued.data["reason"], queued.data["running_count"], queued.data["limit"]) == (
        "per_project",
        4,
        4,
    )
    moved = await rig.event(session, "session.state")
    assert (moved.data["queued"], moved.data["reason"]) == (True, "concurrency_limit")


@pytest.mark.req("K-016", "K-029", "K-122", "K-145")
async def test_a_queued_message_waits_for_a_slot_and_for_the_operator(rig: Rig) -> None:
    busy = await fill(rig)
    session = rig.session()
    run = (await rig.send(session, "hello")).run_id or ""
    with pytest.raises(Conflict, match="no free slot"):
        await rig.resume(session)
    await rig.cancel(busy[0])
    await rig.state(busy[0], "idle")
    assert rig.row(session).state == "queued"  # nothing starts by itself
    resumed = await rig.resume(session)
    assert (resumed.state, resumed.run_id) == ("running", run)
    assert (await rig.over(run)).state == "done"
    assert rig.texts(session) == ["hello", "You said: hello"]
    assert "session.resumed_from_queue" in rig.kinds(session)


@pytest.mark.req("K-017", "K-027", "K-145")
async def test_a_discarded_message_no_longer_counts(rig: Rig) -> None:
    busy = await fill(rig)
    session = rig.session()
    run = (await rig.send(session, "never mind")).run_id or ""
    assert (await rig.plain(session, "discard")).state == "idle"
    assert rig.run_row(run).state == "cancelled"
    assert rig.texts(session) == []
    assert [one.content for one in rig.messages(session, all_of_them=True)] == ["never mind"]
    with pytest.raises(Conflict):
        await rig.plain(session, "discard")
    await rig.cancel(busy[0])
    await rig.state(busy[0], "idle")
    assert (await rig.run(session, "rather this")).state == "done"


@pytest.mark.req("K-121", "K-145")
async def test_a_queued_session_takes_no_second_message(rig: Rig) -> None:
    await fill(rig)
    session = rig.session()
    await rig.send(session, "one")
    with pytest.raises(Conflict, match="queued"):
        await rig.send(session, "two")
    assert rig.texts(session) == ["one"]


@pytest.mark.req("K-123", "K-145")
async def test_a_pause_frees_its_slot_and_a_resume_needs_one(rig: Rig) -> None:
    busy = await fill(rig)
    paused = await rig.pause(busy[0])
    other = rig.session()
    answer = await rig.send(other, HANGING)
    assert answer.state == "running"
    with pytest.raises(Conflict, match="no free slot"):
        await rig.resume(busy[0], paused.checkpoint_id)
    assert rig.row(busy[0]).state == "paused"
    await rig.cancel(other)
    await rig.state(other, "idle")
    assert (await rig.resume(busy[0], paused.checkpoint_id)).state == "running"


@pytest.mark.req("K-119", "K-145")
async def test_the_seventeenth_of_an_operator_is_queued(rig: Rig) -> None:
    """Fifteen run by the book, so that one more fits and the next does not."""
    projects = [rig.project() for _ in range(5)]
    running = [rig.session(project) for project in projects[:4] for _ in range(4)][:15]

    def mark(db: Db) -> None:
        change(db, Operator, rig.operator_id, running_limit=None)
        for session in running:
            change(db, SessionRow, session, state="running")

    rig.store.write(mark)
    sixteenth, seventeenth = rig.session(projects[4]), rig.session(projects[4])
    assert (await rig.send(sixteenth, HANGING)).state == "running"
    assert (await rig.send(seventeenth, "hello")).state == "queued"
    queued = await rig.event(seventeenth, "session.queued")
    assert (queued.data["reason"], queued.data["running_count"], queued.data["limit"]) == (
        "per_operator",
        16,
        16,
    )


@pytest.mark.req("K-119")
def test_an_operator_may_have_a_limit_of_its_own(rig: Rig) -> None:
    own = rig.store.write(lambda db: operators.add(db, "busy-one", running_limit=2).id)
    assert rig.store.read(lambda db: sessions.operator_slots(db, own)) == (0, 2)


@pytest.mark.req("K-125")
async def test_every_start_and_end_tells_how_many_run(rig: Rig) -> None:
    busy = await fill(rig, 1)
    session = rig.session()
    await rig.run(session, "hello")
    counts = [one.data for one in rig.events(session) if one.kind == "sessions.running_count"]
    assert [(one["running"], one["operator_running"], one["limit"]) for one in counts] == [
        (2, 2, 4),
        (1, 1, 4),
    ]
    await rig.cancel(busy[0])


@pytest.mark.req("K-035", "K-124", "K-144")
async def test_of_two_messages_at_once_one_is_taken_and_one_refused(rig: Rig) -> None:
    session = rig.session()
    answers = await asyncio.gather(
        rig.send(session, HANGING), rig.send(session, HANGING), return_exceptions=True
    )
    refused = [one for one in answers if isinstance(one, Conflict)]
    taken = [one for one in answers if not isinstance(one, BaseException)]
    assert (len(refused), len(taken)) == (1, 1)
    assert rig.row(session).run_count == 1
    assert len(rig.texts(session)) == 1
