"""Cancel, end, fail and reopen: each from where it may come, and exactly once."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from holdfast.domain.errors import Conflict, Gone
from holdfast.storage.sessions import supersessions
from tests.support.blob_files import damage_prompt
from tests.support.local_worker import LocalWorker, script
from tests.support.stored_rows import tool_calls_of

TALKING = script({"deltas": 3000, "every_ms": 10})
HANGING = script({"hang_s": 60})


@pytest.mark.req("K-041")
async def test_a_cancelled_run_keeps_its_partial_words_and_is_marked(worker: LocalWorker) -> None:
    session = worker.session()
    run = (await worker.send(session, TALKING)).run_id or ""
    await worker.streaming(session, 5)
    await worker.cancel(session)
    ended = await worker.over(run)
    row = await worker.state(session, "idle")
    assert (ended.state, ended.error, row.active_run) == ("cancelled", None, None)
    kept = worker.messages(session)[-1]
    assert kept.content.startswith("1 2 3 4 5")
    assert kept.meta["cancelled"]
    assert "run.cancelled" in worker.kinds(session)
    assert (await worker.run(session, "go on")).state == "done"


@pytest.mark.req("K-041")
async def test_a_cancelled_tool_call_gets_a_result_that_says_so(worker: LocalWorker) -> None:
    session = worker.session()
    steps = script({"call": "shell", "arguments": {"command": "sleep 60"}}, {"say": "never"})
    run = (await worker.send(session, steps)).run_id or ""
    await worker.event(session, "call.put")
    await worker.cancel(session)
    assert (await worker.over(run)).state == "cancelled"
    (call,) = worker.store.read(lambda db: tool_calls_of(db, run))
    assert call.state == "failed"
    assert worker.messages(session)[-1].role == "tool"
    assert (await worker.run(session, "go on")).state == "done"


@pytest.mark.req("K-042")
async def test_a_cancel_after_the_end_is_refused(worker: LocalWorker) -> None:
    session = worker.session()
    run = await worker.run(session, "quick")
    await worker.state(session, "idle")
    with pytest.raises(Conflict):
        await worker.cancel(session, run.id)
    assert worker.run_row(run.id).state == "done"


@pytest.mark.req("K-042")
async def test_a_cancel_that_races_the_end_leaves_one_of_both(worker: LocalWorker) -> None:
    sessions = [worker.session() for _ in range(4)]

    async def race(session: str, wait_s: float) -> None:
        run = (await worker.send(session, script({"deltas": 4, "every_ms": 10}))).run_id or ""
        await asyncio.sleep(wait_s)
        try:
            await worker.cancel(session)
            possible = {"cancelled"}
        except Conflict:
            possible = {"done"}
        assert (await worker.over(run)).state in possible
        await worker.state(session, "idle")
        kinds = worker.kinds(session)
        assert kinds.count("run.completed") == 1
        assert kinds.count("run.cancelled") == (1 if possible == {"cancelled"} else 0)

    await asyncio.gather(*(race(session, at * 0.03) for at, session in enumerate(sessions)))


@pytest.mark.req("K-041")
async def test_a_cancel_of_another_run_is_refused(worker: LocalWorker) -> None:
    session = worker.session()
    await worker.send(session, HANGING)
    with pytest.raises(Conflict, match="not active"):
        await worker.cancel(session, "01J00000000000000000000000")
    assert worker.row(session).state == "running"
    await worker.cancel(session)


@pytest.mark.req("K-041")
async def test_a_paused_run_can_be_cancelled(worker: LocalWorker) -> None:
    session = worker.session()
    run = (await worker.send(session, HANGING)).run_id or ""
    await worker.pause(session)
    await worker.cancel(session)
    assert (await worker.over(run)).state == "cancelled"
    assert (await worker.state(session, "idle")).current_checkpoint is None
    assert (await worker.run(session, "go on")).state == "done"


async def _idle(worker: LocalWorker) -> str:
    return worker.session()


async def _running(worker: LocalWorker) -> str:
    session = worker.session()
    await worker.send(session, HANGING)
    return session


async def _paused(worker: LocalWorker) -> str:
    session = await _running(worker)
    await worker.pause(session)
    return session


async def _queued(worker: LocalWorker) -> str:
    for _ in range(4):
        await _running(worker)
    session = worker.session()
    assert (await worker.send(session, "hello")).queued
    return session


async def _failed(worker: LocalWorker) -> str:
    session = worker.session()
    damage_prompt(worker.store, session)
    await worker.send(session, "hello")
    await worker.state(session, "failed")
    return session


@pytest.mark.req("K-023", "K-032")
@pytest.mark.parametrize("make", [_idle, _running, _paused, _queued, _failed])
async def test_a_session_ends_from_every_state(
    worker: LocalWorker, make: Callable[[LocalWorker], Awaitable[str]]
) -> None:
    session = await make(worker)
    before = worker.row(session)
    assert (await worker.plain(session, "end")).state == "ended"
    row = worker.row(session)
    assert (row.state, row.active_run) == ("ended", None)
    assert row.ended_at is not None
    if before.active_run is not None:
        assert worker.run_row(before.active_run).state == "cancelled"
    assert worker.kinds(session).count("session.ended") == 1
    with pytest.raises(Gone):
        await worker.send(session, "too late")
    with pytest.raises(Gone):
        await worker.plain(session, "end")


@pytest.mark.req("K-010", "K-025", "H-024", "H-046")
async def test_a_reopened_session_is_answered_and_one_that_failed_stays_ended(
    worker: LocalWorker,
) -> None:
    session = worker.session()
    await worker.run(session, "one")
    await worker.plain(session, "end")
    ended = worker.row(session)
    assert ended.ended_at is not None
    assert ended.end_reason
    told = (await worker.event(session, "session.ended")).data
    assert (told["session_id"], told["reason"]) == (session, ended.end_reason)
    assert (await worker.plain(session, "reopen")).state == "idle"
    reopened = worker.row(session)
    assert (reopened.ended_at, reopened.end_reason) == (None, None)
    assert (await worker.run(session, "two")).state == "done"
    assert worker.texts(session) == ["one", "You said: one", "two", "You said: two"]
    failed = await _failed(worker)
    await worker.plain(failed, "end")
    with pytest.raises(Conflict, match="cleanly"):
        await worker.plain(failed, "reopen")


@pytest.mark.req("K-010")
async def test_a_message_right_behind_a_reopen_is_answered(worker: LocalWorker) -> None:
    session = worker.session()
    await worker.plain(session, "end")
    await worker.plain(session, "reopen")
    answer = await worker.send(session, "hello")
    assert (await worker.over(answer.run_id or "")).state == "done"


@pytest.mark.req("K-012", "K-024", "K-033", "K-139")
async def test_a_damaged_store_fails_the_session_with_its_reason(worker: LocalWorker) -> None:
    session = await _failed(worker)
    row = worker.row(session)
    assert row.failure is not None
    assert row.failure["code"] == "store_damaged"
    assert row.active_run is None
    assert (await worker.event(session, "session.failed")).data["error"] == row.failure
    with pytest.raises(Gone):
        await worker.send(session, "hello?")


@pytest.mark.req("K-102")
async def test_a_context_is_valid_whatever_was_left_out_of_it(worker: LocalWorker) -> None:
    """An answer whose tool result no longer counts is repaired when it is loaded."""
    session = worker.session()
    await worker.run(session, script({"call": "list_files"}, {"say": "done"}))
    result = next(one for one in worker.messages(session) if one.role == "tool")
    worker.store.write(
        lambda db: supersessions.supersede(db, session, [result.id], "discard", "test")
    )
    assert (await worker.run(session, "still there?")).state == "done"
