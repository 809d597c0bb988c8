"""Checkpoints as records: whose they are, what their events say, which files they keep."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.domain.errors import Conflict, NotFound
from holdfast.domain.ids import new_id
from holdfast.domain.tools import CHECKPOINT_TOOL
from holdfast.storage.database.engine import Db
from holdfast.storage.database.opening import OpenStore
from holdfast.storage.database.rows import change
from holdfast.storage.database.tables import Run, SessionRow
from holdfast.storage.database.tables_history import Checkpoint
from holdfast.storage.log import events
from holdfast.storage.moves import checkpoints, prompt_edits
from holdfast.storage.sessions import messages, runs
from tests.support.workflow_double import PROMPTS, WorkflowDouble, comparable


@pytest.fixture
def workflow(sqlite_store: OpenStore) -> WorkflowDouble:
    return WorkflowDouble(sqlite_store)


def pause_as(
    workflow: WorkflowDouble,
    session_id: str,
    created_by: str,
    reason: str,
    checkpoint_id: str | None = None,
) -> Checkpoint:
    def create(db: Db) -> Checkpoint:
        return checkpoints.create(
            db,
            workflow.opened.blobs,
            checkpoint_id=checkpoint_id or new_id(),
            session_id=session_id,
            created_by=created_by,
            prompts=PROMPTS,
            run_id=db.connection().execute(_active_run(session_id)).scalar(),
            reason=reason,
        )

    return workflow.store.write(create)


def _active_run(session_id: str) -> Any:
    place = SessionRow.__table__  # type: ignore[attr-defined]
    return place.select().with_only_columns(place.c.active_run).where(place.c.id == session_id)


def told(workflow: WorkflowDouble, session_id: str, kind: str) -> list[Any]:
    rows = workflow.store.read(lambda db: events.after(db, session_id, 0, limit=500))
    return [row for row in rows if row.kind == kind]


def kept(workflow: WorkflowDouble, made: Checkpoint) -> Checkpoint:
    return workflow.store.read(lambda db: checkpoints.get(db, made.session_id, made.id))


@pytest.mark.req("K-058")
def test_a_pause_that_is_not_the_operators_asks_for_attention(workflow: WorkflowDouble) -> None:
    session_id = workflow.session()
    run_id = workflow.begin(session_id)
    workflow.pause(session_id)
    assert told(workflow, session_id, "attention.required") == []
    workflow.resume(session_id)
    made = pause_as(workflow, session_id, "model", "w" * 300)
    (asked,) = told(workflow, session_id, "attention.required")
    assert asked.data["attention_kind"] == "checkpoint"
    assert asked.data["summary"] == "w" * 200
    assert (asked.run_id, asked.row_id) == (run_id, made.id)
    created = told(workflow, session_id, "checkpoint.created")[-1]
    assert (created.data["created_by"], created.run_id) == ("model", run_id)
    assert created.data["reason"] == made.reason == "w" * 300


def test_the_moves_of_a_pause_name_the_run(workflow: WorkflowDouble) -> None:
    session_id = workflow.session()
    run_id = workflow.begin(session_id)
    for nothing_left in (False, True):
        workflow.pause(session_id)
        workflow.resume(session_id, nothing_left=nothing_left)
    assert workflow.row(session_id).current_checkpoint is None
    moves = [
        (row.data["from_state"], row.data["to_state"], row.run_id)
        for row in told(workflow, session_id, "session.state")
        if "paused" in (row.data["from_state"], row.data["to_state"])
    ]
    assert moves == [
        ("running", "paused", run_id),
        ("paused", "running", run_id),
        ("running", "paused", run_id),
        ("paused", "idle", run_id),
    ]


def test_a_run_that_ended_while_paused_is_not_ended_again(workflow: WorkflowDouble) -> None:
    session_id = workflow.session()
    run_id = workflow.begin(session_id)
    workflow.pause(session_id)
    workflow.store.write(lambda db: change(db, Run, run_id, state="failed"))
    assert workflow.resume(session_id).state == "idle"
    assert workflow.store.read(lambda db: runs.get(db, run_id)).state == "failed"


def test_a_checkpoint_that_never_was_is_not_found(workflow: WorkflowDouble) -> None:
    session_id = workflow.session()
    with pytest.raises(NotFound):
        workflow.store.read(lambda db: checkpoints.get(db, session_id, "nothing"))


def test_checkpoints_of_one_moment_are_each_on_one_page(workflow: WorkflowDouble) -> None:
    session_id = workflow.session()
    workflow.begin(session_id)
    for key in ("b", "c", "a"):
        pause_as(workflow, session_id, "operator", "look", key)
        workflow.resume(session_id)
        workflow.store.write(lambda db, key=key: change(db, Checkpoint, key, created_at=1))  # type: ignore[misc]
    before: tuple[int, str] | None = None
    for expected in ("c", "b", "a"):
        page = workflow.store.read(
            lambda db, before=before: checkpoints.of_session(db, session_id, limit=1, before=before)  # type: ignore[misc]
        )
        assert [one.id for one in page] == [expected]
        before = (1, expected)


def test_an_empty_session_has_no_cursor(workflow: WorkflowDouble) -> None:
    session_id = workflow.session()
    workflow.store.write(lambda db: change(db, SessionRow, session_id, state="running"))
    assert workflow.pause(session_id).message_history_cursor is None


def test_pages_of_checkpoints_end_at_their_limit(workflow: WorkflowDouble) -> None:
    session_id = workflow.session()
    workflow.begin(session_id)
    made = []
    for _ in range(3):
        made.append(workflow.pause(session_id))
        workflow.resume(session_id)
    for row, at in zip(made, (10, 20, 20), strict=True):
        workflow.store.write(lambda db, k=row.id, t=at: change(db, Checkpoint, k, created_at=t))  # type: ignore[misc]
    low, high = sorted(row.id for row in made[1:])

    def page(limit: int, before: tuple[int, str] | None = None) -> list[str]:
        rows = workflow.store.read(
            lambda db: checkpoints.of_session(db, session_id, limit=limit, before=before)
        )
        return [row.id for row in rows]

    assert page(10) == [high, low, made[0].id]
    assert page(2) == [high, low]
    assert page(10, (20, low)) == [made[0].id]


@pytest.mark.req("K-069")
def test_only_the_sessions_own_checkpoints_are_archived(
    workflow: WorkflowDouble, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkpoints, "ACTIVE_MAX", 1)
    other_id, session_id = workflow.session(), workflow.session()
    for session in (other_id, session_id):
        workflow.begin(session)
    theirs = workflow.pause(other_id)
    made = []
    for _ in range(3):
        made.append(workflow.pause(session_id))
        workflow.resume(session_id)
        workflow.finish(str(workflow.row(session_id).active_run))
        workflow.begin(session_id)
    head_id = str(workflow.row(session_id).current_head)
    assert (
        comparable(workflow.state(head_id))["checkpoints"]
        == (workflow.state_in_tables(session_id)["checkpoints"])
    )
    assert [kept(workflow, row).archived for row in made] == [True, True, False]
    assert not kept(workflow, theirs).archived


@pytest.mark.req("K-066", "K-068")
def test_a_rollback_is_noted_at_its_checkpoint_only(workflow: WorkflowDouble) -> None:
    session_id, other_id = workflow.session(), workflow.session()
    workflow.begin(session_id)
    workflow.begin(other_id)
    first = workflow.pause(session_id)
    workflow.resume(session_id)
    second = workflow.pause(session_id)
    theirs = workflow.pause(other_id)
    workflow.roll_back(session_id, first.id, undo_tree="before")
    assert [kept(workflow, row).rolled_back for row in (first, second, theirs)] == [
        True,
        False,
        False,
    ]
    assert kept(workflow, first).undo_tree == "before"
    assert kept(workflow, theirs).superseded_by is None
    (told_once,) = told(workflow, session_id, "checkpoint.rolled_back")
    assert told_once.row_id == first.id


def test_the_count_of_superseded_checkpoints(workflow: WorkflowDouble) -> None:
    session_id = workflow.session()
    workflow.begin(session_id)
    first = workflow.pause(session_id)
    for _ in range(2):
        workflow.resume(session_id)
        workflow.pause(session_id)
    assert workflow.store.write(lambda db: checkpoints.supersede_after(db, first)) == 2
    assert workflow.store.write(lambda db: checkpoints.supersede_after(db, first)) == 0


@pytest.mark.req("K-065")
def test_the_notice_of_an_edit_belongs_to_the_run(workflow: WorkflowDouble) -> None:
    session_id = workflow.session()
    run_id = workflow.begin(session_id)
    made = workflow.pause(session_id)
    blobs = workflow.opened.blobs
    workflow.store.write(lambda db: prompt_edits.edit(db, blobs, made, "helper", "More."))
    workflow.resume(session_id)
    notice = workflow.store.read(lambda db: messages.history(db, session_id))[-1]
    assert (notice.role, notice.run_id) == ("system", run_id)
    assert notice.meta == {
        "kind": prompt_edits.NOTICE_KIND,
        "target": "helper",
        "checkpoint_id": made.id,
    }
    assert workflow.store.read(lambda db: prompt_edits.unproven(db, session_id))
    workflow.say(session_id, "half", "primary", meta={"interrupted": True})
    assert workflow.store.read(lambda db: prompt_edits.unproven(db, session_id))
    workflow.say(session_id, "whole", "primary")
    assert not workflow.store.read(lambda db: prompt_edits.unproven(db, session_id))


def test_a_tools_checkpoint_is_found_once_the_operator_went_on(
    workflow: WorkflowDouble, monkeypatch: pytest.MonkeyPatch
) -> None:
    session_id = workflow.session()
    run_id = workflow.begin(session_id)
    workflow.call(session_id, run_id, "shell")
    asked = workflow.call(session_id, run_id, CHECKPOINT_TOOL)
    later = workflow.call(session_id, run_id, CHECKPOINT_TOOL)
    made = pause_as(workflow, session_id, "model", "look")

    def resumed_for(run: str, call: str | None) -> str | None:
        found = workflow.store.read(lambda db: checkpoints.resumed_for(db, run, call))
        return None if found is None else found.id

    assert resumed_for(run_id, asked) is None
    workflow.resume(session_id)
    assert resumed_for(run_id, asked) == made.id
    for run, call in ((run_id, later), (run_id, None), ("other", asked)):
        assert resumed_for(run, call) is None
    newest = pause_as(workflow, session_id, "model", "look again")
    workflow.resume(session_id)
    monkeypatch.setattr(checkpoints, "ACTIVE_MAX", 1)
    assert resumed_for(run_id, asked) == newest.id, "the newest counts, and no more are read"
    workflow.store.write(lambda db: change(db, Checkpoint, newest.id, snapshot={}))
    assert resumed_for(run_id, asked) is None
    monkeypatch.undo()
    assert resumed_for(run_id, asked) == made.id
    workflow.store.write(lambda db: change(db, Checkpoint, made.id, created_by="operator"))
    assert resumed_for(run_id, asked) is None


def test_the_trees_of_checkpoints_and_of_late_runs_are_in_use(workflow: WorkflowDouble) -> None:
    session_id = workflow.session()
    early, late = workflow.begin(session_id), ""
    made = workflow.pause(session_id)
    workflow.resume(session_id, nothing_left=True)
    late = workflow.begin(session_id)

    def note(db: Db) -> None:
        checkpoints.set_tree(db, made.id, "tree", "all files")
        change(db, Checkpoint, made.id, undo_tree="undo")
        change(db, Run, early, created_at=9, tree_before="early")
        change(db, Run, late, created_at=10, tree_before="late")

    workflow.store.write(note)
    stored = kept(workflow, made)
    assert (stored.tree, stored.tree_note) == ("tree", "all files")
    in_use = workflow.store.read(lambda db: checkpoints.trees_in_use(db, runs_since=10))
    assert in_use == {"tree", "undo", "late"}


def test_a_session_is_resumed_once_from_each_checkpoint(workflow: WorkflowDouble) -> None:
    session_id = workflow.session()
    workflow.begin(session_id)
    made = workflow.pause(session_id)
    # As a signal does it, and the approval of a compaction: without the id of a command.
    workflow.resume(session_id, made.id, command_id="")
    with pytest.raises(Conflict):
        workflow.resume(session_id, made.id, command_id="")
    rows = workflow.store.read(lambda db: events.after(db, session_id, 0, limit=100))
    told = [row for row in rows if row.kind == "checkpoint.resumed"]
    assert [(row.row_kind, row.row_id) for row in told] == [("checkpoint", made.id)]
