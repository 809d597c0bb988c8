"""A run is not compacted without end, and a summary that was paid for is not asked for again."""

from __future__ import annotations

import asyncio

import pytest

from activities.compaction.compactors import Compactors, Made
from activities.compaction.job import Job
from holdfast.agent.compaction import Entry
from holdfast.storage.database.tables_history import Checkpoint, Compaction
from holdfast.storage.moves import checkpoints, compactions
from tests.support.local_worker import DEADLINE_S, LocalWorker, script, until
from workflows import agent_loop

PROJECT = """
primary:
  model: scripted:echo
  tools: {"*": {enabled: false}, list_files: {enabled: true}}
  compaction: {strategy: %s}
"""
LONG_STEP = {"call": "list_files", "deltas": 600}


def records(worker: LocalWorker, session: str) -> list[Compaction]:
    return worker.store.read(lambda db: compactions.page(db, session, limit=9))


async def pause_point(worker: LocalWorker, session: str) -> Checkpoint:
    paused = await worker.state(session, "paused")
    return worker.store.read(
        lambda db: checkpoints.get(db, session, paused.current_checkpoint or "")
    )


async def test_a_run_that_is_compacted_too_often_pauses_for_the_operator(
    worker: LocalWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert agent_loop.COMPACTIONS_MAX == 50
    monkeypatch.setattr(agent_loop, "COMPACTIONS_MAX", 2)
    session = worker.session(worker.project(PROJECT % "drop"), stuck_guard=False)

    await worker.send(session, script({"repeat": 40, "step": LONG_STEP}, {"say": "done"}))

    point = await pause_point(worker, session)
    assert (point.created_by, point.reason) == ("compaction", "This run was compacted 2 times.")
    made = records(worker, session)
    assert [one.enough for one in made] == [True, True], "each of them freed enough"
    resumed = await worker.resume(session, point.id)
    assert resumed.state == "running"
    await until(lambda: len(records(worker, session)) > 2, "the run to go on")


@pytest.mark.req("K-083")
async def test_a_summary_made_during_a_pause_is_proposed_after_it_and_paid_for_once(
    worker: LocalWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, release = asyncio.Event(), asyncio.Event()
    asked: list[str] = []
    summarise = Compactors.summarise

    async def slowly(self: Compactors, job: Job, removed: list[Entry], made: Made) -> None:
        asked.append(job.step.compaction_id)
        begun.set()
        await release.wait()
        await summarise(self, job, removed, made)

    monkeypatch.setattr(Compactors, "summarise", slowly)
    session = worker.session(worker.project(PROJECT % "checkpoint"), stuck_guard=False)
    await worker.send(session, script({"repeat": 40, "step": LONG_STEP}, {"say": "done"}))
    await asyncio.wait_for(begun.wait(), DEADLINE_S)
    paused = await worker.pause(session)
    release.set()
    (kept,) = await until(lambda: records(worker, session), "the summary to be kept")
    assert (kept.state, kept.checkpoint_id) == ("set_aside", None)

    await worker.resume(session, paused.checkpoint_id)

    await until(lambda: records(worker, session)[0].state == "pending", "the proposal")
    point = await pause_point(worker, session)
    assert (point.reason, point.compaction_id) == ("compaction_pending", kept.id)
    assert records(worker, session)[0].summary == kept.summary
    assert asked == [kept.id], "one summary was asked for"
