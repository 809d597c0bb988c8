"""Cancel, end, fail and reopen: each from where it may come, and exactly once."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from domain.errors import Conflict, Gone
from storage import supersessions, tool_calls
from storage.rows import change
from storage.tables import SessionRow
from tests.support.rig import Rig, script

TALKING = script({"deltas": 3000, "every_ms": 10})
HANGING = script({"hang_s": 60})


@pytest.mark.req("K-041")
async def test_a_cancelled_run_keeps_its_partial_words_and_is_marked(rig: Rig) -> None:
    session = rig.session()
    run = (await rig.send(session, TALKING)).run_id or ""
    await rig.streaming(session, 5)
    await rig.cancel(session)
    ended = await rig.over(run)
    row = await rig.state(session, "idle")
    assert (ended.state, ended.error, row.active_run) == ("cancelled", None, None)
    kept = rig.messages(session)[-1]
    assert kept.content.startswith("1 2 3 4 5")
    assert kept.meta["cancelled"]
    assert "run.cancelled" in rig.kinds(session)
    assert (await rig.run(session, "go on")).state == "done"


@pytest.mark.req("K-041")
async def test_a_cancelled_tool_call_gets_a_result_that_says_so(rig: Rig) -> None:
    session = rig.session()
    steps = script({"call": "shell", "arguments": {"command": "sleep 60"}}, {"say": "never"})
    run = (await rig.send(session, steps)).run_id or ""
    await rig.event(session, "call.put")
    await rig.cancel(session)
    assert (await rig.over(run)).state == "cancelled"
    (call,) = rig.store.read(lambda db: tool_calls.of_run(db, run))
    assert call.state == "failed"
    assert rig.messages(session)[-1].role == "tool"
    assert (await rig.run(session, "go on")).state == "done"


@pytest.mark.req("K-042")
async def test_a_cancel_after_the_end_is_refused(rig: Rig) -> None:
    session = rig.session()
    run = await rig.run(session, "quick")
    await rig.state(session, "idle")
    with pytest.raises(Conflict):
        await rig.cancel(session, run.id)
    assert rig.run_row(run.id).state == "done"


@pytest.mark.req("K-042")
async def test_a_cancel_that_races_the_end_leaves_one_of_both(rig: Rig) -> None:
    sessions = [rig.session() for _ in range(4)]

    async def race(session: str, wait_s: float) -> None:
        run = (await rig.send(session, script({"deltas": 4, "every_ms": 10}))).run_id or ""
        await asyncio.sleep(wait_s)
        try:
            await rig.cancel(session)
            possible = {"cancelled"}
        except Conflict:
            possible = {"done"}
        assert (await rig.over(run)).state in possible
        await rig.state(session, "idle")
        kinds = rig.kinds(session)
        assert kinds.count("run.completed") == 1
        assert kinds.count("run.cancelled") == (1 if possible == {"cancelled"} else 0)

    await asyncio.gather(*(race(session, at * 0.03) for at, session in enumerate(sessions)))


@pytest.mark.req("K-041")
async def test_a_cancel_of_another_run_is_refused(rig: Rig) -> None:
    session = rig.session()
    await rig.send(session, HANGING)
    with pytest.raises(Conflict, match="not active"):
        await rig.cancel(session, "01J00000000000000000000000")
    assert rig.row(session).state == "running"
    await rig.cancel(session)


@pytest.mark.req("K-041")
async def test_a_paused_run_can_be_cancelled(rig: Rig) -> None:
    session = rig.session()
    run = (await rig.send(session, HANGING)).run_id or ""
    await rig.pause(session)
    await rig.cancel(session)
    assert (await rig.over(run)).state == "cancelled"
    assert (await rig.state(session, "idle")).current_checkpoint is None
    assert (await rig.run(session, "go on")).state == "done"


async def _idle(rig: Rig) -> str:
    return rig.session()


async def _running(rig: Rig) -> str:
    session = rig.session()
    await rig.send(session, HANGING)
    return session


async def _paused(rig: Rig) -> str:
    session = await _running(rig)
    await rig.pause(session)
    return session


async def _queued(rig: Rig) -> str:
    for _ in range(4):
        await _running(rig)
    session = rig.session()
    assert (await rig.send(session, "hello")).queued
    return session


async def _failed(rig: Rig) -> str:
    session = rig.session()
    missing = {"primary": "sha256:" + "0" * 64}
    rig.store.write(lambda db: change(db, SessionRow, session, prompts=missing))
    await rig.send(session, "hello")
    await rig.state(session, "failed")
    return session


@pytest.mark.req("K-023", "K-032")
@pytest.mark.parametrize("make", [_idle, _running, _paused, _queued, _failed])
async def test_a_session_ends_from_every_state(
    rig: Rig, make: Callable[[Rig], Awaitable[str]]
) -> None:
    session = await make(rig)
    before = rig.row(session)
    assert (await rig.plain(session, "end")).state == "ended"
    row = rig.row(session)
    assert (row.state, row.active_run) == ("ended", None)
    assert row.ended_at is not None
    if before.active_run is not None:
        assert rig.run_row(before.active_run).state == "cancelled"
    assert rig.kinds(session).count("session.ended") == 1
    with pytest.raises(Gone):
        await rig.send(session, "too late")
    with pytest.raises(Gone):
        await rig.plain(session, "end")


@pytest.mark.req("K-010", "K-025", "H-024")
async def test_a_reopened_session_is_answered_and_one_that_failed_stays_ended(rig: Rig) -> None:
    session = rig.session()
    await rig.run(session, "one")
    await rig.plain(session, "end")
    ended = rig.row(session)
    assert ended.ended_at is not None
    assert ended.end_reason
    assert (await rig.plain(session, "reopen")).state == "idle"
    reopened = rig.row(session)
    assert (reopened.ended_at, reopened.end_reason) == (None, None)
    assert (await rig.run(session, "two")).state == "done"
    assert rig.texts(session) == ["one", "You said: one", "two", "You said: two"]
    failed = await _failed(rig)
    await rig.plain(failed, "end")
    with pytest.raises(Conflict, match="cleanly"):
        await rig.plain(failed, "reopen")


@pytest.mark.req("K-010")
async def test_a_message_right_behind_a_reopen_is_answered(rig: Rig) -> None:
    session = rig.session()
    await rig.plain(session, "end")
    await rig.plain(session, "reopen")
    answer = await rig.send(session, "hello")
    assert (await rig.over(answer.run_id or "")).state == "done"


@pytest.mark.req("K-012", "K-024", "K-033", "K-139")
async def test_a_damaged_store_fails_the_session_with_its_reason(rig: Rig) -> None:
    session = await _failed(rig)
    row = rig.row(session)
    assert row.failure is not None
    assert row.failure["code"] == "store_damaged"
    assert row.active_run is None
    assert (await rig.event(session, "session.failed")).data["error"] == row.failure
    with pytest.raises(Gone):
        await rig.send(session, "hello?")


@pytest.mark.req("K-102")
async def test_a_context_is_valid_whatever_was_left_out_of_it(rig: Rig) -> None:
    """An answer whose tool result no longer counts is repaired when it is loaded."""
    session = rig.session()
    await rig.run(session, script({"call": "list_files"}, {"say": "done"}))
    result = next(one for one in rig.messages(session) if one.role == "tool")
    rig.store.write(lambda db: supersessions.supersede(db, session, [result.id], "discard", "test"))
    assert (await rig.run(session, "still there?")).state == "done"
