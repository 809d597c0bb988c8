"""A compaction by hand is a run: it is seen among the others and ends however it goes."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from activities.compaction.compactors import Compactors
from activities.compaction.job import Job
from holdfast.domain.commands import Compact
from holdfast.domain.errors import Conflict
from holdfast.domain.ids import new_id
from holdfast.storage.database.tables import Run
from holdfast.storage.moves import compactions
from holdfast.storage.sessions import runs
from holdfast.temporal.updates import WorkflowBroken
from tests.support.local_worker import LocalWorker, until
from worker.recovery import close_lost_compactions, watch_forever
from workflows import steps

PROJECT = """
primary:
  model: scripted:echo
  tools: {"*": {enabled: false}}
  compaction: {strategy: summarize}
"""
# A command that says in its project's folder when it began and waits until it may go on.
WAITING = """
primary:
  model: scripted:echo
  tools: {"*": {enabled: false}}
  compaction:
    strategy: delegate
    delegate_to: >-
      command: sh -c 'touch began; until test -e go; do sleep 0.05; done;
      echo "{\\"summary\\": \\"in short\\"}"'
"""
WORDS = "the quick brown fox jumps over the lazy dog and goes home "


def newest_run(worker: LocalWorker, session: str) -> Run:
    return worker.store.read(lambda db: runs.of_session(db, session, limit=1))[0]


async def talked(worker: LocalWorker, project: str = PROJECT) -> str:
    """A session with something to compact."""
    session = worker.session(worker.project(project))
    for number in range(4):
        await worker.run(session, f"{number}: {WORDS * 5}")
    await worker.state(session, "idle")
    return session


@pytest.mark.req("K-080")
async def test_a_manual_compaction_is_a_run_of_the_one_who_asked(worker: LocalWorker) -> None:
    session = await talked(worker)

    answer = await worker.plain(session, "compact")

    run = newest_run(worker, session)
    record = worker.store.read(lambda db: compactions.get(db, session, answer.compaction_id or ""))
    assert answer.run_id == run.id == record.run_id
    assert (run.state, run.finish_reason, run.error) == ("done", "compacted", None)
    assert (run.user_id, run.operator_message) == (worker.operator_id, None)
    assert worker.row(session).state == "idle"
    assert worker.row(session).active_run is None


@pytest.mark.req("K-080")
async def test_the_run_of_a_manual_compaction_fails_when_every_attempt_times_out(
    worker: LocalWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def hang(self: Compactors, job: Job, removed: object, made: object) -> None:
        await asyncio.Future()

    hasty = replace(steps.compact_context, timeout=timedelta(milliseconds=500), attempts=2)
    monkeypatch.setattr(Compactors, "summarise", hang)
    monkeypatch.setattr(steps, "compact_context", hasty)
    session = await talked(worker)

    with pytest.raises(WorkflowBroken):
        await worker.plain(session, "compact")

    run = newest_run(worker, session)
    assert (run.state, run.finish_reason) == ("failed", "failed")
    assert run.error is not None
    assert run.error["code"] == "compaction_failed"
    assert run.completed_at is not None
    assert (await worker.run(session, "still there?")).state == "done"


@pytest.mark.req("K-080", "K-099")
async def test_a_manual_compaction_that_is_lost_with_its_workflow_leaves_no_run_open(
    worker: LocalWorker,
) -> None:
    session = await talked(worker, WAITING)
    folder = Path(worker.row(session).working_directory)
    asked = asyncio.create_task(worker.plain(session, "compact"))
    await until((folder / "began").exists, "the compaction to begin")
    run = newest_run(worker, session)
    assert (run.state, run.completed_at) == ("running", None)
    await worker.stop_worker()
    asked.cancel()
    await asyncio.gather(asked, return_exceptions=True)
    await worker.handle(session).terminate("lost")
    await worker.start_worker()

    watching = asyncio.create_task(watch_forever(worker.sessions, worker.store))
    ended = await worker.over(run.id)
    watching.cancel()
    await asyncio.gather(watching, return_exceptions=True)

    assert (ended.state, ended.finish_reason) == ("failed", "failed")
    assert ended.error is not None
    assert ended.error["code"] == "daemon_crash_during_run"
    assert worker.row(session).state == "idle"
    (folder / "go").touch()
    again = await worker.plain(session, "compact")
    assert (newest_run(worker, session).id, newest_run(worker, session).state) == (
        again.run_id,
        "done",
    )


@pytest.mark.req("K-080")
async def test_a_manual_compaction_is_made_again_when_its_workflow_is_lost_meanwhile(
    worker: LocalWorker,
) -> None:
    session = await talked(worker, WAITING)
    folder = Path(worker.row(session).working_directory)
    asked = asyncio.create_task(worker.plain(session, "compact"))
    await until((folder / "began").exists, "the compaction to begin")
    lost = newest_run(worker, session)

    await worker.handle(session).terminate("lost")
    (folder / "go").touch()
    answer = await asked

    again, ended = worker.store.read(lambda db: runs.of_session(db, session, limit=2))
    assert (again.id, again.state, again.finish_reason) == (answer.run_id, "done", "compacted")
    assert (ended.id, ended.state) == (lost.id, "failed")
    assert ended.error is not None
    assert ended.error["code"] == "daemon_crash_during_run"


async def test_the_start_of_a_worker_leaves_a_manual_compaction_alone_that_goes_on(
    worker: LocalWorker,
) -> None:
    session = await talked(worker, WAITING)
    folder = Path(worker.row(session).working_directory)
    asked = asyncio.create_task(worker.plain(session, "compact"))
    await until((folder / "began").exists, "the compaction to begin")

    await close_lost_compactions(worker.sessions, worker.store)

    (folder / "go").touch()
    answer = await asked
    run = newest_run(worker, session)
    assert (run.id, run.state, run.finish_reason) == (answer.run_id, "done", "compacted")


async def test_a_refused_manual_compaction_leaves_no_run(worker: LocalWorker) -> None:
    session = await talked(worker)
    before = newest_run(worker, session).id
    asked = Compact(command_id=new_id(), user_id=worker.operator_id, strategy="checkpoint")

    with pytest.raises(Conflict):
        await worker.command(session, "compact", asked)

    assert newest_run(worker, session).id == before
    assert worker.row(session).run_count == 4
