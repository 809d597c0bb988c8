"""What a checkpoint's snapshot holds of the run that it interrupts, and of nothing else."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.domain.ids import new_id
from holdfast.storage.database.opening import OpenStore
from holdfast.storage.database.rows import change, insert_once
from holdfast.storage.database.tables import SubagentInvocation, ToolCallRow
from holdfast.storage.database.tables_history import Pty
from holdfast.storage.log import frames
from holdfast.storage.moves import checkpoint_snapshots, prompt_edits
from holdfast.storage.moves.checkpoint_snapshots import checkpoint_json
from tests.support.workflow_double import WorkflowDouble


@pytest.fixture
def workflow(sqlite_store: OpenStore) -> WorkflowDouble:
    return WorkflowDouble(sqlite_store)


def snapshot(workflow: WorkflowDouble, session_id: str, run_id: str | None) -> dict[str, Any]:
    return workflow.store.read(
        lambda db: checkpoint_snapshots.snapshot(db, session_id, run_id),
    )


def ids(items: list[dict[str, Any]]) -> list[str]:
    return [item["id"] for item in items]


def two_runs(workflow: WorkflowDouble) -> tuple[str, str, str]:
    """A session, a run that is over and one that works."""
    session_id = workflow.session()
    over = workflow.begin(session_id)
    workflow.finish(over)
    return session_id, over, workflow.begin(session_id)


@pytest.mark.req("K-060")
def test_the_subagents_are_the_runs_own_in_the_order_they_began(workflow: WorkflowDouble) -> None:
    session_id, over, run_id = two_runs(workflow)
    workflow.subagent(session_id, over)
    late, early, ended = (workflow.subagent(session_id, run_id) for _ in range(3))

    def spread(db: Any) -> None:
        change(db, SubagentInvocation, late, spawned_at=3)
        change(db, SubagentInvocation, early, spawned_at=1, state="spawned")
        change(db, SubagentInvocation, ended, spawned_at=2, state="done", cage_id="cage-1")

    workflow.store.write(spread)
    shown = snapshot(workflow, session_id, run_id)["active_subagents"]
    assert ids(shown) == [early, ended, late]
    assert [one["state"] for one in shown] == ["suspended", "exited", "suspended"]
    assert [one["cage_id"] for one in shown] == [None, "cage-1", None]
    assert {one["agent_path"] for one in shown} == {"primary.subagents.helper"}


@pytest.mark.req("K-059")
def test_the_pending_calls_are_the_runs_own_without_a_result(workflow: WorkflowDouble) -> None:
    session_id, over, run_id = two_runs(workflow)
    workflow.call(session_id, over)
    waiting, running, done, failed = (workflow.call(session_id, run_id) for _ in range(4))

    def spread(db: Any) -> None:
        change(db, ToolCallRow, waiting, created_at=9, position=1)
        change(db, ToolCallRow, running, created_at=9, position=0, state="running")
        change(db, ToolCallRow, done, created_at=1, state="done")
        change(db, ToolCallRow, failed, created_at=1, state="failed")

    workflow.store.write(spread)
    early = workflow.call(session_id, run_id, "read_file", path="x")
    workflow.store.write(lambda db: change(db, ToolCallRow, early, created_at=8, position=2))
    shown = snapshot(workflow, session_id, run_id)["pending_tool_calls"]
    assert ids(shown) == [early, running, waiting]
    assert shown[0] == {
        "id": early,
        "tool_name": "read_file",
        "caller": "primary",
        "input": {"path": "x"},
        "state": "pending",
        "created_at": 8,
    }
    assert shown[1]["state"] == "running"


def test_a_snapshot_without_a_run_is_empty(workflow: WorkflowDouble) -> None:
    session_id = workflow.session()
    run_id = workflow.begin(session_id)
    workflow.call(session_id, run_id)
    workflow.subagent(session_id, run_id)
    empty: dict[str, list[Any]] = {"active_subagents": [], "pending_tool_calls": []}
    assert snapshot(workflow, session_id, None) == empty


def test_an_input_is_whole_up_to_the_limit(workflow: WorkflowDouble) -> None:
    session_id = workflow.session()
    run_id = workflow.begin(session_id)
    frame = len('{"text": ""}')
    room = checkpoint_snapshots.INPUT_CHARS_MAX - frame
    workflow.call(session_id, run_id, text="ü" * room)
    workflow.call(session_id, run_id, text="ü" * (room + 1))
    whole, cut = snapshot(workflow, session_id, run_id)["pending_tool_calls"]
    assert whole["input"] == {"text": "ü" * room}
    assert cut["input"] == {"truncated": '{"text": "' + "ü" * (room + 1) + '"'}


@pytest.mark.req("K-060")
def test_the_last_output_is_the_subagents_own_words_oldest_first(workflow: WorkflowDouble) -> None:
    session_id = workflow.session()
    run_id = workflow.begin(session_id)
    helper, other = workflow.subagent(session_id, run_id), workflow.subagent(session_id, run_id)
    path = "primary.subagents.helper"

    def say(text: str, invocation: str, role: str = "subagent") -> str:
        said = workflow.say(
            session_id, text, role, run_id=run_id, agent_path=path, invocation_id=invocation
        )
        return said.id

    for number in range(11):
        say(f"line {number}", helper)
    say("", helper)
    say("a tool's result", helper, "tool")
    told = say("from the other", other)

    def stream(message_id: str, text: str) -> None:
        delta = {"run_id": run_id, "message_id": message_id, "agent_path": path, "text": text}
        workflow.store.write(lambda db: frames.append(db, session_id, ("delta", delta)))

    stream(told, "stored already")
    coming = new_id()
    stream(coming, "still ")
    stream(coming, "talking")
    first, second = snapshot(workflow, session_id, run_id)["active_subagents"]
    shown = {first["id"]: first["last_output"], second["id"]: second["last_output"]}
    lines = [f"line {number}" for number in range(2, 11)]  # ten messages, one of them empty
    assert shown[helper] == "\n".join([*lines, "still talking"])
    assert shown[other] == "from the other\nstill talking"


@pytest.mark.req("K-060")
def test_a_subagent_names_its_own_terminal(workflow: WorkflowDouble) -> None:
    session_id, over, run_id = two_runs(workflow)
    workflow.subagent(session_id, run_id)
    workflow.subagent(session_id, run_id, "silent")

    def terminal(run: str, subagent: str) -> str:
        row = Pty(id=new_id(), session_id=session_id, run_id=run, subagent=subagent)
        workflow.store.write(lambda db: insert_once(db, Pty, row.model_dump()))
        return row.id

    terminal(over, "helper")
    terminal(run_id, "another")
    own = terminal(run_id, "helper")
    shown = snapshot(workflow, session_id, run_id)["active_subagents"]
    assert {one["name"]: one["pty_id"] for one in shown} == {"helper": own, "silent": None}


@pytest.mark.req("K-059")
def test_a_checkpoint_shows_its_snapshot_and_whether_files_can_come_back(
    workflow: WorkflowDouble,
) -> None:
    session_id = workflow.session()
    run_id = workflow.begin(session_id)
    helper, call = workflow.subagent(session_id, run_id), workflow.call(session_id, run_id)
    made = workflow.pause(session_id)
    shown = workflow.store.read(lambda db: checkpoint_json(db, made))
    assert ids(shown["active_subagents"]) == [helper]
    assert ids(shown["pending_tool_calls"]) == [call]
    assert not shown["can_restore_files"]
    assert not shown["can_undo_restore"]
    assert "compaction" not in shown
    made.tree = "tree-1"
    shown = workflow.store.read(lambda db: checkpoint_json(db, made))
    assert (shown["can_restore_files"], shown["can_undo_restore"]) == (True, False)
    made.tree, made.undo_tree = None, "tree-2"
    shown = workflow.store.read(lambda db: checkpoint_json(db, made))
    assert (shown["can_restore_files"], shown["can_undo_restore"]) == (False, True)


def test_a_checkpoint_shows_the_compaction_that_it_waits_for(workflow: WorkflowDouble) -> None:
    session_id = workflow.session()
    message = workflow.say(session_id, "long")
    workflow.compact(session_id, [workflow.say(session_id, "other").id])
    wanted = workflow.compact(session_id, [message.id])
    workflow.begin(session_id)
    made = workflow.pause(session_id)
    made.compaction_id = wanted.id
    shown = workflow.store.read(lambda db: checkpoint_json(db, made))["compaction"]
    assert shown is not None
    assert (shown["id"], shown["superseded_message_ids"]) == (wanted.id, [message.id])
    made.compaction_id = "gone"
    assert workflow.store.read(lambda db: checkpoint_json(db, made))["compaction"] is None


@pytest.mark.req("K-063")
def test_a_checkpoint_shows_its_own_edits_in_order(workflow: WorkflowDouble) -> None:
    session_id, other_id = workflow.session(), workflow.session()
    blobs = workflow.opened.blobs

    def pause_and_edit(session: str, *texts: str) -> tuple[Any, list[str]]:
        workflow.begin(session)
        made = workflow.pause(session)

        def edit(text: str) -> str:
            return workflow.store.write(
                lambda db: prompt_edits.edit(db, blobs, made, "helper", text).id
            )

        return made, [edit(text) for text in texts]

    pause_and_edit(other_id, "Other.")
    made, edits = pause_and_edit(session_id, "One.", "Two.")
    shown = workflow.store.read(lambda db: checkpoint_json(db, made))["prompt_edits"]
    assert [edit["id"] for edit in shown] == edits
    assert {edit["target"] for edit in shown} == {"helper"}
    assert shown[1]["old_hash"] == shown[0]["new_hash"]


def test_a_snapshot_has_a_limit(workflow: WorkflowDouble, monkeypatch: pytest.MonkeyPatch) -> None:
    assert checkpoint_snapshots.ITEMS_MAX == 100
    monkeypatch.setattr(checkpoint_snapshots, "ITEMS_MAX", 2)
    session_id = workflow.session()
    run_id = workflow.begin(session_id)
    calls = [workflow.call(session_id, run_id) for _ in range(3)]

    def spawn(db: Any) -> None:
        for key in ("c", "b", "a"):
            row = SubagentInvocation(
                id=key, run_id=run_id, session_id=session_id, subagent_name=key, agent_path=key
            )
            insert_once(db, SubagentInvocation, row.model_dump())

    workflow.store.write(spawn)
    shown = snapshot(workflow, session_id, run_id)
    assert ids(shown["pending_tool_calls"]) == calls[:2]
    assert ids(shown["active_subagents"]) == ["a", "b"]


def test_a_subagent_that_streams_nothing_shows_only_what_it_said(
    workflow: WorkflowDouble, monkeypatch: pytest.MonkeyPatch
) -> None:
    session_id, other_id = workflow.session(), workflow.session()
    run_id = workflow.begin(session_id)
    path = "primary.subagents.helper"
    helper = workflow.subagent(session_id, run_id)

    def stream(session: str, text: str) -> None:
        delta = {"run_id": run_id, "message_id": new_id(), "agent_path": path, "text": text}
        workflow.store.write(lambda db: frames.append(db, session, ("delta", delta)))

    def output() -> str:
        (one,) = snapshot(workflow, session_id, run_id)["active_subagents"]
        return str(one["last_output"])

    stream(other_id, "of another session")
    assert output() == ""
    workflow.say(
        session_id, "said", "subagent", run_id=run_id, agent_path=path, invocation_id=helper
    )
    assert output() == "said"
    monkeypatch.setattr(checkpoint_snapshots, "FRAMES_MAX", 1)
    stream(session_id, "long ago")
    stream(session_id, "now")
    assert output() == "said\nnow"
