"""What a run does around a pause, a rollback and a roll-over: it ends once, and the next begins."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import timedelta

import pytest

from activities.checkpoints import CheckpointActivities
from holdfast.domain.commands import Pause
from holdfast.domain.ids import new_id
from holdfast.domain.steps import ProcessesStep
from tests.support.local_worker import LocalWorker, script
from workflows import steps

SLOW_ANSWER = {"deltas": 200, "every_ms": 10}


@pytest.mark.req("K-019", "K-020", "K-123")
async def test_a_paused_run_goes_on_after_its_resume(worker: LocalWorker) -> None:
    session = worker.session()
    story = script({"call": "list_files", "hang_s": 2}, {"say": "Both steps done."})
    run = (await worker.send(session, story)).run_id or ""
    paused = await worker.pause(session)
    assert paused.state == "paused"
    assert worker.row(session).current_checkpoint == paused.checkpoint_id
    resumed = await worker.resume(session, paused.checkpoint_id)
    assert (resumed.state, resumed.run_id) == ("running", run)
    assert (await worker.over(run)).state == "done"
    assert worker.texts(session)[-1] == "Both steps done."


@pytest.mark.req("K-022")
async def test_a_resume_with_nothing_left_ends_the_run_and_the_next_is_answered(
    worker: LocalWorker,
) -> None:
    session = worker.session()
    run = (await worker.send(session, script(SLOW_ANSWER))).run_id or ""
    await worker.streaming(session)
    paused = await worker.pause(session)
    await worker.event(session, "call.put")
    resumed = await worker.resume(session, paused.checkpoint_id)
    if resumed.state == "running":  # the answer was stored, but not yet known to the workflow
        await worker.over(run)
    assert worker.run_row(run).state == "done"
    await worker.state(session, "idle")
    assert (await worker.run(session, "and now?")).state == "done"
    assert worker.texts(session)[-1] == "You said: and now?"


@pytest.mark.req("K-021")
async def test_a_message_after_a_rollback_is_answered(worker: LocalWorker) -> None:
    session = worker.session()
    await worker.run(session, "first")
    story = script({"call": "list_files", "hang_s": 60}, {"say": "never said"})
    run = (await worker.send(session, story)).run_id or ""
    paused = await worker.pause(session)
    rolled = await worker.roll_back(session, paused.checkpoint_id or "")
    assert rolled.state == "idle"
    assert worker.run_row(run).state == "cancelled"
    again = await worker.run(session, "again")
    assert again.state == "done"
    assert worker.texts(session)[-1] == "You said: again"


@pytest.mark.req("K-021", "K-077")
async def test_words_of_a_call_that_a_rollback_stopped_do_not_count(worker: LocalWorker) -> None:
    session = worker.session()
    await worker.run(session, "first")
    story = script({"deltas": 3000, "every_ms": 10})
    await worker.send(session, story)
    await worker.streaming(session)
    paused = await worker.pause(session)
    await worker.roll_back(session, paused.checkpoint_id or "")
    again = await worker.run(session, "again")
    assert again.state == "done"
    texts = worker.texts(session)
    assert texts[-2:] == ["again", "You said: again"]
    assert not any(text.startswith("1 2 3") for text in texts)


async def test_a_pause_holds_when_its_processes_cannot_be_reached(
    worker: LocalWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def hang(self: CheckpointActivities, step: ProcessesStep, *, suspend: bool) -> bool:
        return await asyncio.Future()

    monkeypatch.setattr(CheckpointActivities, "_act", hang)
    for name in ("suspend_processes", "resume_processes"):
        hasty = replace(getattr(steps, name), timeout=timedelta(milliseconds=200), attempts=1)
        monkeypatch.setattr(steps, name, hasty)
    session = worker.session()
    await worker.send(session, script({"call": "list_files", "hang_s": 2}, {"say": "Went on."}))
    before = await worker.handle(session).describe()
    await worker.handle(session).signal("checkpoint", Pause(command_id=new_id(), reason="look"))
    await worker.state(session, "paused")
    await worker.event(session, "checkpoint.created")
    resumed = await worker.resume(session, worker.row(session).current_checkpoint)
    assert resumed.state == "running"
    await worker.state(session, "idle")
    assert worker.texts(session)[-1] == "Went on."
    after = await worker.handle(session).describe()
    assert after.run_id == before.run_id, "the workflow failed and was started again"
