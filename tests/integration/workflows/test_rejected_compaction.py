"""After the operator's no: work goes on, and the question comes back only when more is at stake."""

from __future__ import annotations

import pytest
from sqlalchemy import func, select

from holdfast.domain.commands import Resume
from holdfast.domain.ids import new_id
from holdfast.storage.database.rows import table
from holdfast.storage.database.tables import Call
from holdfast.storage.database.tables_history import Compaction
from holdfast.storage.moves import compactions
from tests.support.local_worker import LocalWorker

PROJECT = """
primary:
  model: scripted:echo
  tools: {"*": {enabled: false}}
  compaction: {strategy: checkpoint}
"""
# A model that refuses a request for its length.
REFUSED = """```script
[{"overflow_above": 100, "say": "it fits now"}]
```"""
WORDS = "the quick brown fox jumps over the lazy dog and goes home "


class Talk:
    """A session whose compactions wait for the operator."""

    def __init__(self, worker: LocalWorker) -> None:
        self.worker = worker
        self.session = worker.session(worker.project(PROJECT))

    def records(self) -> list[Compaction]:
        """The compactions so far, newest first."""
        store = self.worker.store
        return store.read(lambda db: compactions.page(db, self.session, limit=9))

    def summaries_asked_for(self) -> int:
        """How often a model was called for a summary."""
        calls = table(Call).c
        asked = select(func.count()).where(
            calls.session_id == self.session, calls.type == "leaf-agent"
        )
        return int(self.worker.store.read(lambda db: db.connection().execute(asked).scalar_one()))

    async def until_reviewed(self, *, words: int) -> None:
        """Say so many words at a time until a compaction waits."""
        known, said = len(self.records()), 0
        while len(self.records()) == known:
            assert (said := said + 1) < 100, "no compaction is proposed"
            run = await self.worker.run(self.session, WORDS * words)
            assert run.state == "done", run.error
        await self.worker.state(self.session, "paused")

    async def reject(self) -> None:
        """The operator says no."""
        asked = Resume(
            command_id=new_id(),
            user_id=self.worker.operator_id,
            checkpoint_id=self.worker.row(self.session).current_checkpoint,
            compaction="reject",
        )
        answer = await self.worker.command(self.session, "resume", asked)
        assert (answer.state, answer.run_id) == ("idle", None)


@pytest.mark.req("K-084")
async def test_a_rejected_compaction_is_proposed_again_only_after_growth_by_a_tenth(
    worker: LocalWorker,
) -> None:
    talk = Talk(worker)
    await talk.until_reviewed(words=20)
    assert talk.summaries_asked_for() == 1
    await talk.reject()

    run = await worker.run(talk.session, "what now?")

    assert (run.state, run.finish_reason) == ("done", "done")
    assert worker.texts(talk.session)[-1] == "You said: what now?"
    assert (len(talk.records()), talk.summaries_asked_for()) == (1, 1)
    await talk.until_reviewed(words=4)
    again, rejected = talk.records()
    assert again.state == "pending"
    assert again.threshold_estimate >= 1.1 * rejected.threshold_estimate
    assert talk.summaries_asked_for() == 2


@pytest.mark.req("K-084", "K-088")
async def test_a_rejected_compaction_is_proposed_again_when_the_provider_refuses_the_length(
    worker: LocalWorker,
) -> None:
    talk = Talk(worker)
    await talk.until_reviewed(words=20)
    await talk.reject()

    run = await worker.run(talk.session, REFUSED)

    assert (run.state, run.finish_reason) == ("done", "awaiting_compaction")
    await worker.state(talk.session, "paused")
    again, rejected = talk.records()
    assert (again.state, again.trigger) == ("pending", "provider_overflow_retry")
    assert again.threshold_estimate < 1.1 * rejected.threshold_estimate
