"""`Request Cancellation` in the Temporal UI stops the run, and never the session."""

from __future__ import annotations

from tests.support.local_worker import LocalWorker, script


async def test_a_cancelled_workflow_cancels_its_run_and_the_session_goes_on(
    worker: LocalWorker,
) -> None:
    session = worker.session()
    run = (await worker.send(session, script({"deltas": 3000, "every_ms": 10}))).run_id or ""
    await worker.streaming(session)
    await worker.handle(session).cancel()
    assert (await worker.over(run)).state == "cancelled"
    await worker.state(session, "idle")
    assert (await worker.run(session, "go on")).state == "done"


async def test_an_idle_session_whose_workflow_is_cancelled_answers_its_next_message(
    worker: LocalWorker,
) -> None:
    session = worker.session()
    await worker.run(session, "hello")
    await worker.handle(session).cancel()
    assert (await worker.run(session, "go on")).state == "done"
