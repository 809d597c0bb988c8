"""Back to any message: right before it everything is as it was, also in forks."""

from __future__ import annotations

from functools import partial

import pytest
from sqlalchemy import select

from holdfast.domain.errors import Conflict, NotFound, ValidationFailed
from holdfast.storage.database.opening import OpenStore
from holdfast.storage.database.rows import change, table
from holdfast.storage.database.tables import Message, Run
from holdfast.storage.database.tables_history import Checkpoint
from holdfast.storage.log import events
from holdfast.storage.moves import checkpoints, message_points, prompt_edits
from holdfast.storage.moves.checkpoint_snapshots import checkpoint_json
from holdfast.storage.sessions import messages, runs
from holdfast.storage.upkeep import consistency
from tests.support.workflow_double import WorkflowDouble

_messages = table(Message)


@pytest.fixture
def workflow(sqlite_store: OpenStore) -> WorkflowDouble:
    return WorkflowDouble(sqlite_store)


@pytest.fixture
def either_workflow(either_store: OpenStore) -> WorkflowDouble:
    return WorkflowDouble(either_store)


def said(workflow: WorkflowDouble, session_id: str, content: str) -> str:
    """The id of the message with these words that the session sees."""
    page = workflow.store.read(
        lambda db: messages.page(db, session_id, limit=1000, include_superseded=True)
    )
    return next(message.id for message, _ in page if message.content == content)


def newest(workflow: WorkflowDouble, session_id: str) -> list[Checkpoint]:
    return workflow.store.read(lambda db: checkpoints.of_session(db, session_id, limit=100))


def test_a_rollback_to_a_message_takes_it_and_all_since_back(
    either_workflow: WorkflowDouble,
) -> None:
    workflow = either_workflow
    session_id = workflow.session()
    first_head = workflow.run(session_id, "one")
    for content in ("two", "three"):
        workflow.run(session_id, content)
    message_id = said(workflow, session_id, "two")
    outcome = workflow.roll_back_to_message(session_id, message_id)
    assert outcome.messages_superseded == 4
    assert workflow.texts(session_id) == ["one", "done"]
    session = workflow.row(session_id)
    assert (session.state, session.current_head) == ("idle", first_head)
    (point,) = newest(workflow, session_id)
    assert (point.created_by, point.message_seq, point.message_count) == ("message", 2, 2)
    shown = workflow.store.read(lambda db: checkpoint_json(db, point))
    assert (shown["message_id"], shown["rolled_back"]) == (message_id, True)
    next_head = workflow.run(session_id, "instead of two")
    assert workflow.texts(session_id) == ["one", "done", "instead of two", "done"]
    assert workflow.head(next_head).basis == first_head
    assert consistency.check(workflow.opened).issues == []


def test_a_rollback_to_a_message_brings_back_what_a_later_compaction_took(
    workflow: WorkflowDouble,
) -> None:
    session_id = workflow.session()
    for content in ("one", "two"):
        workflow.run(session_id, content)
    workflow.compact(session_id, [said(workflow, session_id, "one")])
    workflow.run(session_id, "three")
    workflow.roll_back_to_message(session_id, said(workflow, session_id, "two"))
    assert workflow.texts(session_id) == ["one", "done"]


def test_a_message_that_was_taken_back_or_is_not_the_operators_is_refused(
    workflow: WorkflowDouble,
) -> None:
    session_id, other_id = workflow.session(), workflow.session()
    workflow.run(session_id, "one")
    message_id = said(workflow, session_id, "one")
    with pytest.raises(NotFound):
        workflow.roll_back_to_message(other_id, message_id)
    with pytest.raises(ValidationFailed):
        workflow.roll_back_to_message(session_id, said(workflow, session_id, "done"))
    workflow.roll_back_to_message(session_id, message_id)
    with pytest.raises(Conflict, match="no part of the conversation"):
        workflow.roll_back_to_message(session_id, message_id)


def test_a_repeated_rollback_to_a_message_gives_the_same_answer(workflow: WorkflowDouble) -> None:
    session_id = workflow.session()
    workflow.run(session_id, "one")
    options = {"checkpoint_id": "point", "command_id": "command"}
    message_id = said(workflow, session_id, "one")
    first = workflow.roll_back_to_message(session_id, message_id, **options)
    assert first.messages_superseded == 2
    assert workflow.roll_back_to_message(session_id, message_id, **options) == first


def test_points_at_messages_do_not_count_among_the_pauses(workflow: WorkflowDouble) -> None:
    session_id = workflow.session()
    run_id = workflow.begin(session_id, "paused")
    pause = workflow.pause(session_id)
    workflow.resume(session_id)
    workflow.finish(run_id)
    for number in range(checkpoints.ACTIVE_MAX):
        workflow.run(session_id, f"message {number}")
        workflow.roll_back_to_message(session_id, said(workflow, session_id, f"message {number}"))
    workflow.begin(session_id, "paused again")
    workflow.pause(session_id)
    kept = workflow.store.read(lambda db: checkpoints.get(db, session_id, pause.id))
    assert kept.archived is False


def test_a_fork_rolls_back_into_what_it_inherited_and_its_source_does_not_change(
    either_workflow: WorkflowDouble,
) -> None:
    workflow = either_workflow
    source_id = workflow.session()
    for content in ("one", "two"):
        workflow.run(source_id, content)
    fork_id = workflow.fork(source_id)
    workflow.run(fork_id, "three")
    deeper_id = workflow.fork(fork_id)
    outcome = workflow.roll_back_to_message(fork_id, said(workflow, fork_id, "two"))
    assert outcome.messages_superseded == 4
    assert workflow.texts(fork_id) == ["one", "done"]
    assert workflow.texts(source_id) == ["one", "done", "two", "done"]
    assert workflow.texts(deeper_id) == ["one", "done", "two", "done", "three", "done"]
    assert workflow.texts(workflow.fork(fork_id)) == ["one", "done"]


def test_a_compaction_of_the_source_stands_between_a_fork_and_its_earlier_messages(
    workflow: WorkflowDouble,
) -> None:
    source_id = workflow.session()
    for content in ("one", "two"):
        workflow.run(source_id, content)
    workflow.compact(source_id, [said(workflow, source_id, "one")])
    fork_id = workflow.fork(source_id)
    with pytest.raises(Conflict, match="was compacted after this message"):
        workflow.roll_back_to_message(fork_id, said(workflow, fork_id, "two"))
    again_id = workflow.fork(source_id, message_id=said(workflow, source_id, "two"))
    assert workflow.texts(again_id) == ["one", "done"]


def test_a_fork_begins_right_before_the_operators_message_or_right_after_an_answer(
    either_workflow: WorkflowDouble,
) -> None:
    workflow = either_workflow
    session_id = workflow.session()
    workflow.finish(workflow.begin(session_id, "one"), "answer one")
    workflow.finish(workflow.begin(session_id, "two"), "answer two")
    before_id = workflow.fork(session_id, message_id=said(workflow, session_id, "two"))
    assert workflow.texts(before_id) == ["one", "answer one"]
    after_id = workflow.fork(session_id, message_id=said(workflow, session_id, "answer one"))
    assert workflow.texts(after_id) == ["one", "answer one"]
    workflow.roll_back_to_message(session_id, said(workflow, session_id, "one"))
    late_id = workflow.fork(session_id, message_id=said(workflow, session_id, "answer two"))
    assert workflow.texts(late_id) == ["one", "answer one", "two", "answer two"]
    assert workflow.row(late_id).message_count == 4


def test_the_prompts_of_that_time_are_in_effect_again(workflow: WorkflowDouble) -> None:
    session_id = workflow.session()
    run_id = workflow.begin(session_id, "one")
    point = workflow.pause(session_id)
    workflow.store.write(
        lambda db: prompt_edits.edit(db, workflow.opened.blobs, point, "primary", "Another.")
    )
    workflow.resume(session_id)
    workflow.finish(run_id)
    assert workflow.row(session_id).prompts
    workflow.roll_back_to_message(session_id, said(workflow, session_id, "one"))
    assert workflow.row(session_id).prompts["primary"] == point.prompts["primary"]


def test_the_files_are_those_before_the_next_run_that_used_tools(workflow: WorkflowDouble) -> None:
    session_id = workflow.session()
    for content, tree in (("one", "tree-1"), ("two", None), ("three", "tree-3"), ("four", "")):
        run_id = workflow.begin(session_id, content)
        workflow.store.write(partial(change, model=Run, key=run_id, tree_before=tree))
        workflow.finish(run_id)
    found = {}
    for content in ("four", "three", "two", "one"):
        key = said(workflow, session_id, content)
        point = workflow.store.write(
            partial(
                message_points.make,
                blobs=workflow.opened.blobs,
                session_id=session_id,
                message_id=key,
                checkpoint_id=key,
            )
        )
        found[content] = (point.tree, point.tree_note)
    assert found == {
        "one": ("tree-1", ""),
        "two": ("tree-3", ""),
        "three": ("tree-3", ""),
        "four": (None, message_points.NOT_SAVED),
    }
    run_id = workflow.begin(session_id, "five")
    workflow.finish(run_id)
    assert workflow.store.read(lambda db: runs.get(db, run_id)).tree_before is None
    workflow.roll_back_to_message(session_id, said(workflow, session_id, "five"))
    assert newest(workflow, session_id)[0].tree_note == message_points.UNCHANGED


def test_a_point_at_a_message_is_audited(workflow: WorkflowDouble) -> None:
    session_id = workflow.session()
    workflow.run(session_id, "one")
    workflow.roll_back_to_message(session_id, said(workflow, session_id, "one"))
    rows = workflow.store.read(lambda db: events.after(db, session_id, 0, limit=100))
    kinds = [row.kind for row in rows if row.kind.startswith("checkpoint.")]
    assert kinds == ["checkpoint.created", "checkpoint.rolled_back"]
    held = workflow.store.read(
        lambda db: db.connection().execute(select(_messages.c.id)).scalars().all()
    )
    assert len(held) == 2
