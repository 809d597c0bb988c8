"""A compaction that waits for the operator: approved as edited, rejected, or rolled back."""

from __future__ import annotations

from pathlib import Path

import pytest

from activities.compaction.review import Review, approve, reject
from holdfast.agent.conversation import repair
from holdfast.domain.compaction_steps import ReviewStep
from holdfast.domain.errors import ValidationFailed
from holdfast.domain.ids import new_id
from holdfast.storage.database.opening import OpenStore
from holdfast.storage.database.tables_history import Compaction
from holdfast.storage.moves import checkpoints, compactions, prompt_edits, rollback
from holdfast.storage.sessions import calls, runs
from tests.support.message_format import broken_rules
from tests.support.step_runner import StepRunner

WORDS = "the quick brown fox jumps over the lazy dog and goes home "
PROJECT = """
version: 1
project: reviewed
primary:
  model: scripted:echo
  tools: {"*": {enabled: false}}
  compaction: {strategy: checkpoint}
"""


class Pending:
    """A session that waits for the operator's word on a compaction."""

    def __init__(self, shop: StepRunner) -> None:
        self.shop = shop
        self.run_id = shop.begin("what is the answer?")

    async def hold(self, *, last_words: str | None = None) -> Compaction:
        for _ in range(12):
            self.shop.use_tool(self.run_id, WORDS * 30)
        if last_words is not None:
            self.shop.say("operator", last_words)
        done = await self.shop.compact(run_id=self.run_id)
        assert done.pending_review
        return self.record()

    def record(self) -> Compaction:
        return self.shop.store.read(lambda db: compactions.page(db, self.shop.session_id, limit=1))[
            0
        ]

    def step(self, decision: str) -> ReviewStep:
        return ReviewStep(
            session_id=self.shop.session_id,
            checkpoint_id=self.record().checkpoint_id or "",
            new_run_id=new_id(),
            user_id=self.shop.operator_id,
            decision=decision,
        )


@pytest.fixture
def pending(sqlite_store: OpenStore, tmp_path: Path) -> Pending:
    return Pending(StepRunner(sqlite_store, tmp_path / "p", PROJECT))


@pytest.mark.req("K-057", "K-080", "K-083")
async def test_a_reviewed_compaction_ends_the_run_and_goes_on_as_the_operator_edited_it(
    pending: Pending,
) -> None:
    shop, store = pending.shop, pending.shop.store
    record = await pending.hold()
    held = shop.state()
    run = store.read(lambda db: runs.get(db, pending.run_id))
    assert (held.state, held.active_run) == ("paused", None)
    assert held.current_checkpoint == record.checkpoint_id
    assert (run.state, run.finish_reason) == ("done", "awaiting_compaction")
    assert record.summary
    assert (record.run_id, record.agent_path, record.rolled_back) == (run.id, "primary", False)
    waits = store.read(lambda db: checkpoints.get(db, shop.session_id, record.checkpoint_id or ""))
    assert (waits.created_by, waits.reason) == ("compaction", "compaction_pending")
    assert waits.compaction_id == record.id
    assert len(shop.history()) == 25, "nothing is superseded before the operator's word"
    step = pending.step("approve")
    kept = record.superseded_message_ids[:-2]
    review = Review("my own words", kept)

    reviewed = store.write(lambda db: approve(db, store.blobs, shop.config, step, review))
    again = store.write(lambda db: approve(db, store.blobs, shop.config, step, review))

    assert reviewed.run_id == again.run_id == step.new_run_id
    done = pending.record()
    point = store.read(lambda db: checkpoints.get(db, shop.session_id, record.checkpoint_id or ""))
    fresh = store.read(lambda db: runs.get(db, step.new_run_id))
    assert shop.state().state == "running"
    assert shop.state().active_run == step.new_run_id
    assert fresh.operator_message == run.operator_message
    assert point.resumed_at is not None
    assert done.state == "done"
    assert set(kept) <= set(done.superseded_message_ids)
    assert "my own words" in shop.context().turns[1].text
    assert broken_rules(repair(shop.context().turns)) == []


async def test_a_review_cannot_name_strange_messages_or_the_last_question(
    pending: Pending,
) -> None:
    shop, store = pending.shop, pending.shop.store
    await pending.hold()
    question = shop.history()[0].id
    step = pending.step("approve")

    def approved(ids: list[str]) -> None:
        store.write(lambda db: approve(db, store.blobs, shop.config, step, Review(None, ids)))

    with pytest.raises(ValidationFailed):
        approved(["nothing"])
    with pytest.raises(ValidationFailed):
        approved([question])
    assert shop.state().state == "paused"


@pytest.mark.req("K-084")
async def test_a_rejected_compaction_leaves_everything_and_the_session_idle(
    pending: Pending,
) -> None:
    shop, store = pending.shop, pending.shop.store
    await pending.hold()
    step = pending.step("reject")

    first = store.write(lambda db: reject(db, step))
    again = store.write(lambda db: reject(db, step))

    record = pending.record()
    point = store.read(lambda db: checkpoints.get(db, shop.session_id, record.checkpoint_id or ""))
    assert first.state == again.state == shop.state().state == "idle"
    assert (record.fallback_occurred, record.fallback_reason) == (True, "operator_rejected")
    assert record.superseded_message_ids == []
    assert point.rolled_back
    assert len(shop.history()) == 25


@pytest.mark.req("K-084")
async def test_the_summary_of_a_rejected_compaction_is_not_paid_for_twice(pending: Pending) -> None:
    shop, store = pending.shop, pending.shop.store
    rejected = await pending.hold(last_words="go on")
    step = pending.step("reject")
    store.write(lambda db: reject(db, step))

    done = await shop.compact(run_id=shop.begin("what now?"))

    again = pending.record()
    assert (done.pending_review, again.id) == (True, done.compaction_id)
    assert again.superseded_message_ids == rejected.superseded_message_ids
    assert (again.summary, again.plugin_cost) == (rejected.summary, None)
    asked = store.read(lambda db: [calls.find(db, one.id) for one in (rejected, again)])
    assert [call is not None for call in asked] == [True, False]


@pytest.mark.req("K-066", "K-084")
async def test_a_rejection_takes_back_prompts_that_were_edited_at_its_checkpoint(
    pending: Pending,
) -> None:
    shop, store = pending.shop, pending.shop.store
    await pending.hold()
    step = pending.step("reject")
    point = store.read(lambda db: checkpoints.get(db, shop.session_id, step.checkpoint_id))
    store.write(lambda db: prompt_edits.edit(db, store.blobs, point, "primary", "Be odd."))

    store.write(lambda db: reject(db, step))

    assert shop.state().prompts == point.prompts
    assert len(shop.history()) == 25, "there is no edit to tell of"


@pytest.mark.req("K-080", "K-085")
async def test_a_rollback_past_a_waiting_compaction_drops_it(pending: Pending) -> None:
    shop, store = pending.shop, pending.shop.store
    record = await pending.hold()
    store.write(lambda db: rollback.roll_back(db, shop.session_id, record.checkpoint_id or ""))
    assert shop.state().state == "idle"
    assert pending.record().rolled_back
    assert pending.record().state == "rejected"
