"""Checkpoints at the level of storage: pause, look, edit, go on."""

from __future__ import annotations

import pytest

from holdfast.domain.errors import ActionNotAllowed, Conflict, NotFound, ValidationFailed
from holdfast.domain.ids import new_id
from holdfast.domain.lifecycle import Action
from holdfast.storage.database.engine import Db
from holdfast.storage.database.opening import OpenStore
from holdfast.storage.log import events, frames
from holdfast.storage.moves import checkpoints, heads, prompt_edits
from holdfast.storage.moves.checkpoint_snapshots import checkpoint_json
from holdfast.storage.sessions import messages, runs, sessions
from tests.support.workflow_double import PROMPTS, WorkflowDouble


@pytest.fixture
def workflow(sqlite_store: OpenStore) -> WorkflowDouble:
    return WorkflowDouble(sqlite_store)


@pytest.fixture
def either_workflow(either_store: OpenStore) -> WorkflowDouble:
    return WorkflowDouble(either_store)


def kinds(workflow: WorkflowDouble, session_id: str) -> list[str]:
    return [
        row.kind
        for row in workflow.store.read(lambda db: events.after(db, session_id, 0, limit=500))
    ]


@pytest.mark.req("K-055", "K-059", "K-123", "K-133", "K-147")
def test_a_checkpoint_pauses_the_session_and_points_at_its_last_message(
    either_workflow: WorkflowDouble,
) -> None:
    workflow = either_workflow
    session_id = workflow.session()
    run_id = workflow.begin(session_id)
    last = workflow.say(session_id, "half an answer", "primary", run_id=run_id)
    made = workflow.pause(session_id, "have a look")
    session = workflow.row(session_id)
    assert (session.state, session.current_checkpoint) == ("paused", made.id)
    assert made.message_history_cursor == last.id
    assert made.run_id == run_id
    assert made.reason == "have a look"
    assert "checkpoint.created" in kinds(workflow, session_id)
    running, _ = workflow.store.read(lambda db: sessions.project_slots(db, workflow.project_id))
    assert running == 0


@pytest.mark.req("K-019")
def test_an_idle_session_cannot_be_paused(workflow: WorkflowDouble) -> None:
    session_id = workflow.session()
    with pytest.raises(ActionNotAllowed):
        workflow.pause(session_id)


def test_the_same_checkpoint_is_made_once(workflow: WorkflowDouble) -> None:
    session_id = workflow.session()
    workflow.begin(session_id)
    checkpoint_id = new_id()

    def pause(db: Db) -> str:
        return checkpoints.create(
            db,
            workflow.opened.blobs,
            checkpoint_id=checkpoint_id,
            session_id=session_id,
            created_by="operator",
            prompts=PROMPTS,
        ).id

    assert workflow.store.write(pause) == workflow.store.write(pause) == checkpoint_id
    assert kinds(workflow, session_id).count("checkpoint.created") == 1


@pytest.mark.req("K-010", "K-031", "K-059", "K-060", "K-061", "K-062", "K-070")
def test_a_snapshot_shows_open_calls_subagents_and_prompts(either_workflow: WorkflowDouble) -> None:
    workflow = either_workflow
    session_id = workflow.session()
    run_id = workflow.begin(session_id)
    call_id = workflow.call(session_id, run_id, command="sleep 30")
    workflow.call(session_id, run_id, "write_file", content="x" * 20_000)
    helper = workflow.subagent(session_id, run_id)
    workflow.say(
        session_id,
        "word " * 200,
        "subagent",
        run_id=run_id,
        agent_path="primary.subagents.helper",
        invocation_id=helper,
    )
    delta = {
        "run_id": run_id,
        "message_id": new_id(),
        "agent_path": "primary.subagents.helper",
        "text": "and still talking",
    }
    workflow.store.write(lambda db: frames.append(db, session_id, ("delta", delta)))
    made = workflow.pause(session_id)
    shown = workflow.store.read(lambda db: checkpoint_json(db, made))
    first, second = shown["pending_tool_calls"]
    assert (first["id"], first["tool_name"]) == (call_id, "shell")
    assert first["input"] == {"command": "sleep 30"}
    assert len(str(second["input"])) < 10_000
    (subagent,) = shown["active_subagents"]
    assert (subagent["name"], subagent["state"]) == ("helper", "suspended")
    assert len(subagent["last_output"]) == 500
    assert subagent["last_output"].endswith("and still talking")
    assert subagent["cage"] == {"id": None, "enabled": False, "kind": None, "network": True}
    assert (subagent["pty_id"], subagent["pty_state"]) == (None, None)
    targets = {prompt["target"]: prompt for prompt in shown["prompts_in_effect"]}
    assert set(targets) == {"primary", "helper"}
    assert all(prompt["editable"] for prompt in targets.values())


@pytest.mark.req("K-064", "K-020")
def test_resume_goes_on_with_the_run(workflow: WorkflowDouble) -> None:
    session_id = workflow.session()
    run_id = workflow.begin(session_id)
    made = workflow.pause(session_id)
    moved = workflow.resume(session_id, made.id)
    assert (moved.state, moved.active_run, moved.current_checkpoint) == ("running", run_id, None)
    resumed = workflow.store.read(lambda db: checkpoints.get(db, session_id, made.id))
    assert resumed.resumed_at is not None


@pytest.mark.req("K-022")
def test_resume_with_nothing_left_ends_the_run_and_is_idle(workflow: WorkflowDouble) -> None:
    session_id = workflow.session()
    run_id = workflow.begin(session_id)
    made = workflow.pause(session_id)
    moved = workflow.resume(session_id, made.id, nothing_left=True)
    assert (moved.state, moved.active_run) == ("idle", None)
    assert workflow.store.read(lambda db: runs.get(db, run_id)).state == "done"
    assert workflow.store.read(lambda db: heads.of(db, session_id, run_id=run_id)) is not None


def test_a_repeated_resume_changes_nothing(workflow: WorkflowDouble) -> None:
    session_id = workflow.session()
    workflow.begin(session_id)
    made = workflow.pause(session_id)
    workflow.resume(session_id, made.id, command_id="one")
    before = kinds(workflow, session_id)
    assert workflow.resume(session_id, made.id, command_id="one").state == "running"
    assert kinds(workflow, session_id) == before


@pytest.mark.req("K-020", "K-064", "K-068")
def test_only_the_current_pause_point_can_be_resumed(workflow: WorkflowDouble) -> None:
    session_id, other_id = workflow.session(), workflow.session()
    workflow.begin(session_id)
    first = workflow.pause(session_id)
    workflow.resume(session_id, first.id)
    second = workflow.pause(session_id)
    with pytest.raises(Conflict, match="not the current pause point"):
        workflow.resume(session_id, first.id)
    workflow.begin(other_id)
    workflow.pause(other_id)
    with pytest.raises(NotFound):
        workflow.resume(other_id, second.id)
    workflow.roll_back(session_id, first.id)
    with pytest.raises(Conflict, match="superseded"):
        workflow.resume(session_id, second.id)


@pytest.mark.req("K-122", "K-123")
def test_resume_needs_a_slot(workflow: WorkflowDouble) -> None:
    session_id = workflow.session()
    workflow.begin(session_id)
    made = workflow.pause(session_id)
    for _ in range(4):
        workflow.begin(workflow.session())
    with pytest.raises(Conflict, match="no free slot"):
        workflow.resume(session_id, made.id)
    assert workflow.row(session_id).state == "paused"


@pytest.mark.req("K-063", "K-065", "K-147")
def test_edited_prompts_are_audited_and_told_to_the_primary(
    either_workflow: WorkflowDouble,
) -> None:
    workflow = either_workflow
    session_id = workflow.session()
    workflow.begin(session_id)
    made = workflow.pause(session_id)

    def edit(target: str, content: str) -> tuple[str, str]:
        row = workflow.store.write(
            lambda db: prompt_edits.edit(db, workflow.opened.blobs, made, target, content)
        )
        return row.old_hash, row.new_hash

    original, first = edit("primary", "You are careful.")
    again, second = edit("primary", "You are very careful.")
    assert again == first
    edit("helper", "You help more.")
    workflow.resume(session_id, made.id)
    session = workflow.row(session_id)
    blobs = workflow.opened.blobs
    assert prompt_edits.text_of(blobs, session, "primary") == "You are very careful."
    helper = "primary.subagents.helper"
    assert prompt_edits.text_of(blobs, session, helper) == "You help more."
    notices = [row for row in workflow.texts(session_id) if row.startswith("System prompts")]
    assert notices[0] == (
        "System prompts were updated at this checkpoint. "
        f"Previous prompt hash: {original}, new prompt hash: {second}."
    )
    assert len(notices) == 2
    assert kinds(workflow, session_id).count("prompt.edited") == 3
    log = workflow.store.read(lambda db: events.after(db, session_id, 0, limit=500))
    resumed = next(row for row in log if row.kind == "checkpoint.resumed")
    assert resumed.data["prompts_edited"] == 2


@pytest.mark.req("K-063")
def test_prompts_are_edited_only_at_the_pause_point(
    workflow: WorkflowDouble, monkeypatch: pytest.MonkeyPatch
) -> None:
    session_id = workflow.session()
    workflow.begin(session_id)
    made = workflow.pause(session_id)
    blobs = workflow.opened.blobs
    with pytest.raises(NotFound):
        workflow.store.write(lambda db: prompt_edits.edit(db, blobs, made, "nobody", "x"))
    with pytest.raises(ValidationFailed):
        workflow.store.write(lambda db: prompt_edits.edit(db, blobs, made, "primary", "  "))
    workflow.resume(session_id, made.id)
    with pytest.raises(Conflict):
        workflow.store.write(lambda db: prompt_edits.edit(db, blobs, made, "primary", "x"))
    later = workflow.pause(session_id)
    with pytest.raises(Conflict):
        workflow.store.write(lambda db: prompt_edits.edit(db, blobs, made, "primary", "x"))
    for words in ("first", "second"):
        workflow.store.write(
            lambda db, text=words: prompt_edits.edit(db, blobs, later, "primary", text)  # type: ignore[misc]
        )
    monkeypatch.setattr(prompt_edits, "EDITS_MAX", 1)
    (oldest,) = workflow.store.read(lambda db: prompt_edits.of_checkpoint(db, later.id))
    assert oldest.new_content == "first"
    assert len(oldest.new_hash) == 64, "a hash without the name of its algorithm"


@pytest.mark.req("K-069")
def test_the_oldest_of_too_many_checkpoints_is_archived(
    workflow: WorkflowDouble, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert checkpoints.ACTIVE_MAX == 50
    monkeypatch.setattr(checkpoints, "ACTIVE_MAX", 3)
    session_id = workflow.session()
    workflow.begin(session_id)
    first = workflow.pause(session_id)
    for _ in range(3):
        workflow.resume(session_id)
        workflow.pause(session_id)

    def listed(db: Db, *, archived: bool) -> list[str]:
        rows = checkpoints.of_session(db, session_id, include_archived=archived, limit=500)
        return [row.id for row in rows]

    active = workflow.store.read(lambda db: listed(db, archived=False))
    everything = workflow.store.read(lambda db: listed(db, archived=True))
    assert len(active) == 3
    assert first.id not in active
    assert everything == [*active, first.id]
    assert workflow.store.read(lambda db: checkpoints.get(db, session_id, first.id)).archived


def test_a_fork_without_own_messages_has_its_sources_cursor(workflow: WorkflowDouble) -> None:
    source = workflow.session()
    workflow.run(source)
    newest = workflow.store.read(lambda db: messages.page(db, source, limit=100))[-1][0].id
    fork = workflow.fork(source)
    workflow.store.write(lambda db: sessions.move(db, fork, Action.START, "test"))
    assert workflow.pause(fork).message_history_cursor == newest
