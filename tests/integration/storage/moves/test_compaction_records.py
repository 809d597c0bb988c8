"""Records of compactions: one session's, one agent's, in order, undone from the newest."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.domain.errors import Conflict, NotFound
from holdfast.domain.ids import new_id
from holdfast.storage.database import blobs
from holdfast.storage.database.opening import OpenStore
from holdfast.storage.database.rows import change, insert_once
from holdfast.storage.database.tables import Call
from holdfast.storage.database.tables_history import Compaction
from holdfast.storage.log import events
from holdfast.storage.moves import compactions
from tests.support.workflow_double import WorkflowDouble


@pytest.fixture
def workflow(sqlite_store: OpenStore) -> WorkflowDouble:
    return WorkflowDouble(sqlite_store)


def record_of(session_id: str, *ids: str, **columns: Any) -> Compaction:
    given: dict[str, Any] = {"trigger": "operator_manual", "strategy": "summarize", **columns}
    return Compaction(id=new_id(), session_id=session_id, superseded_message_ids=list(ids), **given)


def carry_out(
    workflow: WorkflowDouble, record: Compaction, summary: str | None = "In short."
) -> Compaction:
    return workflow.store.write(lambda db: compactions.carry_out(db, record, summary=summary))


def kept(workflow: WorkflowDouble, record: Compaction) -> Compaction:
    return workflow.store.read(lambda db: compactions.get(db, record.session_id, record.id))


def undo(workflow: WorkflowDouble, record: Compaction) -> int:
    return workflow.store.write(lambda db: compactions.undo(db, record.session_id, record.id))


def told(workflow: WorkflowDouble, session_id: str, kind: str) -> list[dict[str, Any]]:
    rows = workflow.store.read(lambda db: events.after(db, session_id, 0, limit=500))
    return [row.data for row in rows if row.kind == kind]


@pytest.mark.req("K-072")
def test_a_compaction_is_carried_out_once(workflow: WorkflowDouble) -> None:
    session_id = workflow.session()
    ids = [workflow.say(session_id, text).id for text in ("one", "two")]
    record = record_of(session_id, *ids, created_at=1)
    again = record.model_copy()
    carry_out(workflow, record)
    carry_out(workflow, again)
    assert workflow.texts(session_id) == ["In short."]
    (finished,) = told(workflow, session_id, "compaction.finished")
    assert finished["superseded"] == 2
    assert (finished["trigger"], finished["strategy"]) == ("operator_manual", "summarize")
    stored = kept(workflow, record)
    assert stored.state == "done"
    assert stored.finished_at is not None
    assert stored.summary_message_id is not None


def test_without_a_summary_nothing_stands_in_their_place(workflow: WorkflowDouble) -> None:
    session_id = workflow.session()
    gone = workflow.say(session_id, "one").id
    workflow.say(session_id, "two")
    record = carry_out(workflow, record_of(session_id, gone), None)
    assert workflow.texts(session_id) == ["two"]
    assert kept(workflow, record).summary_message_id is None
    assert undo(workflow, record) == 1
    assert workflow.texts(session_id) == ["one", "two"]


def test_the_newest_of_an_agent_is_undone_first(workflow: WorkflowDouble) -> None:
    session_id, other_id = workflow.session(), workflow.session()
    first = carry_out(workflow, record_of(session_id, created_at=10))
    second = carry_out(workflow, record_of(session_id, created_at=20))
    rejected = record_of(session_id, created_at=30)
    workflow.store.write(lambda db: compactions.hold(db, rejected))
    workflow.store.write(lambda db: compactions.reject(db, rejected))
    carry_out(workflow, record_of(session_id, created_at=40, agent_path="primary.subagents.helper"))
    carry_out(workflow, record_of(other_id, created_at=50))
    with pytest.raises(Conflict, match="newer") as refused:
        undo(workflow, first)
    assert refused.value.details == {"newer": second.id}
    undo(workflow, second)
    undo(workflow, first)
    for record in (first, rejected):
        with pytest.raises(Conflict, match="not in effect"):
            undo(workflow, record)
    assert kept(workflow, second).undone_at is not None
    assert len(told(workflow, session_id, "compaction.undone")) == 2


def test_a_compaction_of_another_session_is_not_found(workflow: WorkflowDouble) -> None:
    record = carry_out(workflow, record_of(workflow.session()))
    other = workflow.session()
    with pytest.raises(NotFound):
        workflow.store.write(lambda db: compactions.undo(db, other, record.id))
    with pytest.raises(NotFound):
        workflow.store.read(lambda db: compactions.get(db, other, record.id))


def test_no_compaction_is_undone_while_a_run_works(workflow: WorkflowDouble) -> None:
    session_id = workflow.session()
    record = carry_out(workflow, record_of(session_id))
    workflow.begin(session_id)
    with pytest.raises(Conflict, match="while running"):
        undo(workflow, record)
    workflow.pause(session_id)
    undo(workflow, record)


@pytest.mark.req("K-084")
def test_a_held_compaction_takes_nothing_out_and_a_rejected_one_never_does(
    workflow: WorkflowDouble,
) -> None:
    session_id, other_id = workflow.session(), workflow.session()
    message = workflow.say(session_id, "one").id
    record = record_of(session_id, message, checkpoint_id="point")
    elsewhere = record_of(other_id, checkpoint_id="point")
    for one in (elsewhere, record):
        workflow.store.write(lambda db, held=one: compactions.hold(db, held))  # type: ignore[misc]
    assert kept(workflow, record).state == "pending"
    (pending,) = told(workflow, session_id, "compaction.pending")
    assert (pending["compaction_id"], pending["checkpoint_id"]) == (record.id, "point")

    def waiting(checkpoint_id: str) -> str | None:
        found = workflow.store.read(
            lambda db: compactions.of_checkpoint(db, session_id, checkpoint_id)
        )
        return None if found is None else found.id

    assert waiting("point") == record.id
    assert waiting("other") is None
    workflow.store.write(lambda db: compactions.reject(db, record))
    stored = kept(workflow, record)
    assert (stored.state, stored.superseded_message_ids) == ("rejected", [])
    assert (stored.fallback_occurred, stored.fallback_reason) == (True, "operator_rejected")
    assert stored.finished_at is not None
    assert kept(workflow, elsewhere).state == "pending"
    assert workflow.texts(session_id) == ["one"]


def test_a_rollback_abandons_only_what_waits_in_its_session(workflow: WorkflowDouble) -> None:
    session_id, other_id = workflow.session(), workflow.session()
    done = carry_out(workflow, record_of(session_id))
    mine, theirs = record_of(session_id), record_of(other_id)
    for one in (mine, theirs):
        workflow.store.write(lambda db, held=one: compactions.hold(db, held))  # type: ignore[misc]
    workflow.store.write(lambda db: compactions.abandon_pending(db, session_id))
    abandoned = kept(workflow, mine)
    assert (abandoned.state, abandoned.rolled_back) == ("rejected", True)
    assert abandoned.finished_at is not None
    assert (kept(workflow, done).state, kept(workflow, done).rolled_back) == ("done", False)
    assert kept(workflow, theirs).state == "pending"


def test_pages_go_from_the_newest_to_the_oldest(workflow: WorkflowDouble) -> None:
    session_id = workflow.session()
    carry_out(workflow, record_of(workflow.session(), created_at=15))
    oldest = carry_out(workflow, record_of(session_id, created_at=10))
    twins = [carry_out(workflow, record_of(session_id, created_at=20)) for _ in range(2)]
    low, high = sorted(one.id for one in twins)

    def page(limit: int, before: tuple[int, str] | None = None) -> list[str]:
        found = workflow.store.read(
            lambda db: compactions.page(db, session_id, limit=limit, before=before)
        )
        return [one.id for one in found]

    assert page(10) == [high, low, oldest.id]
    assert page(1) == [high]
    assert page(10, (20, high)) == [low, oldest.id]
    assert page(10, (10, oldest.id)) == []


def test_a_context_changes_when_its_own_compaction_ends_or_is_undone(
    workflow: WorkflowDouble,
) -> None:
    session_id = workflow.session()
    record = carry_out(workflow, record_of(session_id))
    other = carry_out(workflow, record_of(workflow.session()))

    def changed(path: str = "primary") -> int:
        return workflow.store.read(lambda db: compactions.changed_at(db, session_id, path))

    def set_times(one: Compaction, **times: int) -> None:
        workflow.store.write(lambda db: change(db, Compaction, one.id, **times))

    set_times(other, finished_at=900)
    set_times(record, finished_at=100)
    assert changed() == 100
    set_times(record, undone_at=200)
    assert changed() == 200
    assert changed("primary.subagents.helper") == 0


@pytest.mark.req("K-079")
def test_feedback_changes_only_what_it_gives(workflow: WorkflowDouble) -> None:
    session_id = workflow.session()
    record = carry_out(workflow, record_of(session_id))

    def give(**values: Any) -> tuple[str | None, str | None]:
        found = workflow.store.write(
            lambda db: compactions.give_feedback(db, session_id, record.id, values)
        )
        return found.operator_flag, found.operator_notes

    assert give(operator_flag="bad") == ("bad", None)
    assert give(operator_notes="lost the plan") == ("bad", "lost the plan")
    assert give() == ("bad", "lost the plan")
    assert give(operator_flag=None) == (None, "lost the plan")


def test_what_was_dropped_is_superseded_only_while_it_is_in_effect(
    workflow: WorkflowDouble,
) -> None:
    session_id = workflow.session()
    message = workflow.say(session_id, "one")
    record = carry_out(workflow, record_of(session_id, message.id))

    def dropped() -> list[tuple[str, bool]]:
        stored = kept(workflow, record)
        found = workflow.store.read(lambda db: compactions.dropped(db, stored))
        shown = compactions.view(stored, found)["dropped"]
        return [(one["content"], one["superseded"]) for one in shown]

    assert "dropped" not in compactions.view(kept(workflow, record))
    assert dropped() == [("one", True)]
    undo(workflow, record)
    assert dropped() == [("one", False)]
    waiting = record_of(session_id, message.id, checkpoint_id="point")
    workflow.store.write(lambda db: compactions.hold(db, waiting))
    found = workflow.store.read(lambda db: compactions.dropped(db, waiting))
    proposed = compactions.view(kept(workflow, waiting), found)["dropped"]
    assert [one["superseded"] for one in proposed] == [False], "it is only proposed"


def test_a_summary_is_paid_for_once_and_an_operators_words_are_no_models_answer(
    workflow: WorkflowDouble,
) -> None:
    session_id = workflow.session()
    request = workflow.store.write(
        lambda db: blobs.commit(db, workflow.opened.blobs.put_json({"messages": ["sum it up"]}))
    )

    def known() -> str | None:
        return workflow.store.read(
            lambda db: compactions.summary_of_request(db, session_id, request)
        )

    def asked(summary: str, status: str) -> None:
        record = record_of(session_id, summary=summary)
        call = Call(id=record.id, session_id=session_id, request_ref=request, status=status)
        workflow.store.write(lambda db: insert_once(db, Call, call.model_dump()))
        carry_out(workflow, record)

    asked("what the operator wrote when the model had failed", "failed")
    assert known() is None
    asked("what the model wrote", "done")
    assert known() == "what the model wrote"


@pytest.mark.req("K-086")
def test_the_oldest_of_too_many_records_become_one(
    workflow: WorkflowDouble, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert (compactions.RECORDS_MAX, compactions.COLLAPSED_AT_ONCE) == (1000, 100)
    monkeypatch.setattr(compactions, "RECORDS_MAX", 3)
    monkeypatch.setattr(compactions, "COLLAPSED_AT_ONCE", 2)
    session_id = workflow.session()
    theirs = carry_out(workflow, record_of(workflow.session(), created_at=1))
    made = [carry_out(workflow, record_of(session_id, created_at=1000 * at)) for at in (3, 1, 2)]

    def listed() -> list[tuple[str, int]]:
        found = workflow.store.read(lambda db: compactions.page(db, session_id, limit=10))
        return [(one.id, one.collapsed_count) for one in found]

    assert listed() == [(made[at].id, 0) for at in (0, 2, 1)]
    newest = carry_out(workflow, record_of(session_id, created_at=4000))
    assert listed() == [(newest.id, 0), (made[0].id, 0), (made[2].id, 2)]
    row = kept(workflow, made[2])
    assert (row.state, row.created_at) == ("collapsed", 2000)
    assert row.summary == "2 compactions before 1970-01-01T00:00:02+00:00"
    last = carry_out(workflow, record_of(session_id, created_at=5000))
    assert listed() == [(last.id, 0), (newest.id, 0), (made[0].id, 3)]
    assert kept(workflow, theirs).state == "done"


def test_a_held_compaction_is_done_once_it_is_carried_out(workflow: WorkflowDouble) -> None:
    record = record_of(workflow.session())
    workflow.store.write(lambda db: compactions.hold(db, record))
    carry_out(workflow, record)
    assert kept(workflow, record).state == "done"
