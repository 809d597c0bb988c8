"""What a run does around a pause, a rollback and a roll-over: it ends once, and the next begins."""

from __future__ import annotations

import pytest

from tests.support.rig import Rig, script

SLOW_ANSWER = {"deltas": 200, "every_ms": 10}


@pytest.mark.req("K-019", "K-020", "K-123")
async def test_a_paused_run_goes_on_after_its_resume(rig: Rig) -> None:
    session = rig.session()
    steps = script({"call": "list_files", "hang_s": 2}, {"say": "Both steps done."})
    run = (await rig.send(session, steps)).run_id or ""
    paused = await rig.pause(session)
    assert paused.state == "paused"
    assert rig.row(session).current_checkpoint == paused.checkpoint_id
    resumed = await rig.resume(session, paused.checkpoint_id)
    assert (resumed.state, resumed.run_id) == ("running", run)
    assert (await rig.over(run)).state == "done"
    assert rig.texts(session)[-1] == "Both steps done."


@pytest.mark.req("K-022")
async def test_a_resume_with_nothing_left_ends_the_run_and_the_next_is_answered(rig: Rig) -> None:
    session = rig.session()
    run = (await rig.send(session, script(SLOW_ANSWER))).run_id or ""
    await rig.streaming(session)
    paused = await rig.pause(session)
    await rig.event(session, "call.put")
    resumed = await rig.resume(session, paused.checkpoint_id)
    if resumed.state == "running":  # the answer was stored, but not yet known to the workflow
        await rig.over(run)
    assert rig.run_row(run).state == "done"
    await rig.state(session, "idle")
    assert (await rig.run(session, "and now?")).state == "done"
    assert rig.texts(session)[-1] == "You said: and now?"


@pytest.mark.req("K-021")
async def test_a_message_after_a_rollback_is_answered(rig: Rig) -> None:
    session = rig.session()
    await rig.run(session, "first")
    steps = script({"call": "list_files", "hang_s": 60}, {"say": "never said"})
    run = (await rig.send(session, steps)).run_id or ""
    paused = await rig.pause(session)
    rolled = await rig.roll_back(session, paused.checkpoint_id or "")
    assert rolled.state == "idle"
    assert rig.run_row(run).state == "cancelled"
    again = await rig.run(session, "again")
    assert again.state == "done"
    assert rig.texts(session)[-1] == "You said: again"


@pytest.mark.req("K-021", "K-077")
async def test_words_of_a_call_that_a_rollback_stopped_do_not_count(rig: Rig) -> None:
    session = rig.session()
    await rig.run(session, "first")
    steps = script({"deltas": 3000, "every_ms": 10})
    await rig.send(session, steps)
    await rig.streaming(session)
    paused = await rig.pause(session)
    await rig.roll_back(session, paused.checkpoint_id or "")
    again = await rig.run(session, "again")
    assert again.state == "done"
    texts = rig.texts(session)
    assert texts[-2:] == ["again", "You said: again"]
    assert not any(text.startswith("1 2 3") for text in texts)
