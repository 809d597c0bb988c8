"""`schedule_minutes`: room is made while nobody waits for it, and only where there is need."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import timedelta

import pytest

from activities.compaction.steps import CompactionActivities
from activities.context import build
from holdfast.agent.conversation import repair
from holdfast.domain.compaction_steps import Compacted, CompactStep
from holdfast.settings.config import Config
from holdfast.storage.database.tables_history import Compaction
from holdfast.storage.moves import compactions
from tests.support.local_worker import DEADLINE_S, LocalWorker, until
from tests.support.message_format import broken_rules
from workflows import steps, waiting

PROJECT = """
primary:
  model: scripted:echo
  tools: {"*": {enabled: false}}
  compaction: {strategy: drop, schedule_minutes: 1, upper: 0.9, lower: 0.5}
"""
WINDOW = {"providers": {"scripted": {"driver": "scripted", "context_window": 4000}}}
WORDS = "the quick brown fox jumps over the lazy dog and goes home "


def minutes_are_short(*, minutes: int) -> timedelta:
    return timedelta(milliseconds=20 * minutes)


@pytest.mark.req("K-072")
async def test_an_idle_session_is_compacted_once_its_time_has_come(
    worker: LocalWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waiting, "timedelta", minutes_are_short)
    worker.config = Config.model_validate(WINDOW)
    session = worker.session(worker.project(PROJECT))

    def records() -> list[Compaction]:
        return worker.store.read(lambda db: compactions.page(db, session, limit=9))

    await worker.run(session, "hello")
    for number in range(3):
        await worker.run(session, f"{number}: {WORDS * 13}")
    (record,) = await until(records, "the scheduled compaction")
    assert (record.trigger, record.run_id, record.strategy) == ("scheduled", None, "drop")
    assert record.threshold_estimate < 0.9, "the threshold would have done it"
    assert record.superseded_message_ids
    assert record.after_estimate <= 0.5
    await worker.state(session, "idle")
    context = worker.store.read(lambda db: build(db, worker.store.blobs, worker.config, session))
    assert broken_rules(repair(context.turns)) == []
    assert (await worker.run(session, "still there?")).state == "done"


async def test_a_session_goes_on_after_a_scheduled_compaction_that_times_out(
    worker: LocalWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun = asyncio.Event()

    async def hang(self: CompactionActivities, step: CompactStep) -> Compacted:
        begun.set()
        return await asyncio.Future()

    hasty = replace(steps.compact_context, timeout=timedelta(milliseconds=200), attempts=1)
    monkeypatch.setattr(CompactionActivities, "compact", hang)
    monkeypatch.setattr(steps, "compact_context", hasty)
    monkeypatch.setattr(waiting, "timedelta", minutes_are_short)
    session = worker.session(worker.project(PROJECT))
    await worker.run(session, "hello")
    await asyncio.wait_for(begun.wait(), DEADLINE_S)
    before = await worker.handle(session).describe()
    assert (await worker.run(session, "still there?")).state == "done"
    after = await worker.handle(session).describe()
    assert after.run_id == before.run_id, "the workflow failed and was started again"
