"""`Request Cancellation` in the Temporal UI stops the run, and never the session."""

from __future__ import annotations

from tests.support.rig import Rig, script


async def test_a_cancelled_workflow_cancels_its_run_and_the_session_goes_on(rig: Rig) -> None:
    session = rig.session()
    run = (await rig.send(session, script({"deltas": 3000, "every_ms": 10}))).run_id or ""
    await rig.streaming(session)
    await rig.handle(session).cancel()
    assert (await rig.over(run)).state == "cancelled"
    await rig.state(session, "idle")
    assert (await rig.run(session, "go on")).state == "done"


async def test_an_idle_session_whose_workflow_is_cancelled_answers_its_next_message(
    rig: Rig,
) -> None:
    session = rig.session()
    await rig.run(session, "hello")
    await rig.handle(session).cancel()
    assert (await rig.run(session, "go on")).state == "done"
