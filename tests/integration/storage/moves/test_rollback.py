"""Rollback: nothing is deleted, everything after the checkpoint no longer counts."""

from __future__ import annotations

import pytest
from sqlalchemy import func, select

from holdfast.domain.errors import ActionNotAllowed, Conflict, NotFound
from holdfast.storage.database.opening import OpenStore
from holdfast.storage.database.rows import change, table
from holdfast.storage.database.tables import Message, Run, SubagentInvocation, ToolCallRow
from holdfast.storage.log import events
from holdfast.storage.moves import checkpoints, compactions, prompt_edits, rollback
from holdfast.storage.sessions import runs, tool_calls
from tests.support.workflow_double import WorkflowDouble


@pytest.fixture
def workflow(sqlite_store: OpenStore) -> WorkflowDouble:
    return WorkflowDouble(sqlite_store)


@pytest.fixture
def either_workflow(either_store: OpenStore) -> WorkflowDouble:
    return WorkflowDouble(either_store)


def rows_of(workflow: WorkflowDouble) -> int:
    count = select(func.count()).select_from(table(Message))
    return workflow.store.read(lambda db: int(db.connection().execute(count).scalar_one()))


@pytest.mark.req("K-066", "K-067", "K-147")
def test_a_rollback_supersedes_what_came_after_and_deletes_nothing(
    either_workflow: WorkflowDouble,
) -> None:
    workflow = either_workflow
    session_id = workflow.session()
    run_id = workflow.begin(session_id, "one")
    made = workflow.pause(session_id)
    workflow.resume(session_id, made.id)
    workflow.finish(run_id, "answer one")
    workflow.run(session_id, "two")
    before = rows_of(workflow)
    outcome = workflow.roll_back(session_id, made.id)
    assert outcome.messages_superseded == 3
    assert rows_of(workflow) == before
    assert workflow.texts(session_id) == ["one"]
    session = workflow.row(session_id)
    assert (session.state, session.current_checkpoint) == ("idle", None)
    assert session.current_head == made.head_id
    assert workflow.roll_back(session_id, made.id).messages_superseded == 0


@pytest.mark.req("K-066")
def test_a_rollback_of_a_paused_run_cancels_it_and_kills_its_subagents(
    either_workflow: WorkflowDouble,
) -> None:
    workflow = either_workflow
    session_id = workflow.session()
    run_id = workflow.begin(session_id)
    made = workflow.pause(session_id)
    workflow.resume(session_id, made.id)
    call_id = workflow.call(session_id, run_id)
    helper = workflow.subagent(session_id, run_id)
    finished = workflow.call(session_id, run_id)
    workflow.store.write(lambda db: change(db, ToolCallRow, finished, state="done"))
    elsewhere = workflow.session()
    untouched = workflow.call(elsewhere, workflow.begin(elsewhere))
    workflow.pause(session_id)
    outcome = workflow.roll_back(session_id, made.id, user_id="me")
    assert outcome.cancelled_run == run_id
    assert outcome.killed_invocations == [helper]

    def states(model: type, key: str) -> str:
        place = table(model)
        found = select(place.c.state).where(place.c.id == key)
        return str(workflow.store.read(lambda db: db.connection().execute(found).scalar_one()))

    assert workflow.store.read(lambda db: runs.get(db, run_id)).state == "cancelled"
    assert states(SubagentInvocation, helper) == "killed"
    stopped = workflow.store.read(lambda db: tool_calls.find(db, call_id))
    assert stopped is not None
    assert (stopped.state, stopped.output) == ("failed", {"error": rollback.INTERRUPTED})
    assert stopped.completed_at is not None
    assert states(ToolCallRow, finished) == "done"
    assert states(ToolCallRow, untouched) == "pending", "another session's call"


def test_a_rollback_cancels_no_run_that_ended_while_it_was_paused(workflow: WorkflowDouble) -> None:
    session_id = workflow.session()
    run_id = workflow.begin(session_id)
    made = workflow.pause(session_id)
    workflow.store.write(lambda db: change(db, Run, run_id, state="failed"))
    assert workflow.roll_back(session_id, made.id).cancelled_run is None
    assert workflow.store.read(lambda db: runs.get(db, run_id)).state == "failed"


@pytest.mark.req("K-068", "K-147")
def test_a_rollback_to_an_old_checkpoint_supersedes_those_between(workflow: WorkflowDouble) -> None:
    session_id = workflow.session()
    workflow.begin(session_id)
    first = workflow.pause(session_id)
    workflow.resume(session_id)
    second = workflow.pause(session_id)
    workflow.resume(session_id)
    third = workflow.pause(session_id)
    workflow.roll_back(session_id, first.id)
    found = {
        row.id: row.superseded_by
        for row in workflow.store.read(lambda db: checkpoints.of_session(db, session_id, limit=10))
    }
    assert found == {first.id: None, second.id: first.id, third.id: first.id}
    with pytest.raises(Conflict, match="superseded"):
        workflow.roll_back(session_id, second.id)


def test_a_repeated_rollback_gives_the_same_answer(workflow: WorkflowDouble) -> None:
    session_id = workflow.session()
    run_id = workflow.begin(session_id)
    made = workflow.pause(session_id)
    workflow.resume(session_id)
    workflow.say(session_id, "more", "primary", run_id=run_id)
    workflow.pause(session_id)
    first = workflow.roll_back(session_id, made.id, command_id="command")
    assert first.messages_superseded == 1
    assert workflow.roll_back(session_id, made.id, command_id="command") == first


def test_a_running_session_and_a_foreign_checkpoint_are_refused(workflow: WorkflowDouble) -> None:
    session_id, other_id = workflow.session(), workflow.session()
    workflow.begin(session_id)
    made = workflow.pause(session_id)
    with pytest.raises(NotFound):
        workflow.roll_back(other_id, made.id)
    workflow.resume(session_id)
    with pytest.raises(ActionNotAllowed):
        workflow.roll_back(session_id, made.id)


@pytest.mark.req("K-066")
def test_the_prompts_of_the_checkpoint_are_in_effect_again(workflow: WorkflowDouble) -> None:
    session_id = workflow.session()
    workflow.begin(session_id)
    made = workflow.pause(session_id)
    blobs = workflow.opened.blobs
    workflow.store.write(lambda db: prompt_edits.edit(db, blobs, made, "primary", "Other."))
    workflow.resume(session_id)
    workflow.pause(session_id)
    workflow.roll_back(session_id, made.id)
    text = prompt_edits.text_of(blobs, workflow.row(session_id), "primary")
    assert text == "You are the root."


@pytest.mark.req("K-085")
def test_a_rollback_past_a_compaction_brings_its_messages_back(
    either_workflow: WorkflowDouble,
) -> None:
    workflow = either_workflow
    session_id = workflow.session()
    early = workflow.say(session_id, "early")
    run_id = workflow.begin(session_id, "late")
    made = workflow.pause(session_id)
    workflow.resume(session_id)
    workflow.finish(run_id)
    record = workflow.compact(session_id, [early.id])
    assert "early" not in workflow.texts(session_id)
    workflow.roll_back(session_id, made.id)
    assert workflow.texts(session_id) == ["early", "late"]
    kept = workflow.store.read(lambda db: compactions.get(db, session_id, record.id))
    assert kept.rolled_back


@pytest.mark.req("K-085")
def test_a_compaction_before_the_checkpoint_stays(workflow: WorkflowDouble) -> None:
    session_id = workflow.session()
    early = workflow.say(session_id, "early")
    workflow.compact(session_id, [early.id])
    workflow.begin(session_id, "late")
    made = workflow.pause(session_id)
    workflow.roll_back(session_id, made.id)
    assert workflow.texts(session_id) == ["In short.", "late"]


def test_a_rollback_ends_the_run_for_its_operator_and_undoes_only_later_compactions(
    workflow: WorkflowDouble,
) -> None:
    session_id = workflow.session()
    workflow.run(session_id, "one")
    early = workflow.compact(session_id, [workflow.seen(session_id)[0][0]])
    run_id = workflow.begin(session_id, "two")
    made = workflow.pause(session_id)
    workflow.resume(session_id)
    late = workflow.compact(session_id, [])
    workflow.pause(session_id)

    workflow.roll_back(session_id, made.id, user_id="alice", command_id="once")

    row = workflow.row(session_id)
    assert (row.state, row.active_run, row.current_checkpoint) == ("idle", None, None)
    run = workflow.store.read(lambda db: runs.get(db, run_id))
    assert (run.state, run.finish_reason) == ("cancelled", "rolled_back")
    told = workflow.store.read(lambda db: events.after(db, session_id, 0, limit=200))
    assert [one.data["user_id"] for one in told if one.kind == "run.cancelled"] == ["alice"]
    undone = [one.row_id for one in told if one.kind == "compaction.undone"]
    assert undone == [late.id]
    kept = {
        one.id: (one.rolled_back, one.undone_at is not None)
        for one in workflow.store.read(lambda db: compactions.page(db, session_id, limit=9))
    }
    assert kept == {early.id: (False, False), late.id: (True, True)}
