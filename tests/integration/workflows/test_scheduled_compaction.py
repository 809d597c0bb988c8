"""`schedule_minutes`: room is made while nobody waits for it, and only where there is need."""

from __future__ import annotations

from datetime import timedelta

import pytest

from activities.context import build
from holdfast.agent.conversation import repair, validate
from holdfast.settings.config import Config
from holdfast.storage.database.tables_history import Compaction
from holdfast.storage.moves import compactions
from tests.support.local_worker import LocalWorker, until
from workflows import waiting

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
    assert validate(repair(context.turns)) == []
    assert (await worker.run(session, "still there?")).state == "done"
