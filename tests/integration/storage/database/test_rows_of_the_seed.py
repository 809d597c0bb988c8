"""What the tables of the core seed hold once something happened, read straight from them."""

from __future__ import annotations

from typing import Any

import pytest
from sqlalchemy import text

from holdfast.domain.ids import new_id
from holdfast.domain.transcript import Transcript
from holdfast.storage.database.opening import OpenStore
from holdfast.storage.database.tables import SubagentInvocation
from holdfast.storage.database.tables_history import Pty
from holdfast.storage.moves import prompt_edits
from holdfast.storage.sessions import invocations, ptys, runs, tool_calls
from tests.support.workflow_double import PROMPTS, WorkflowDouble


@pytest.fixture
def workflow(sqlite_store: OpenStore) -> WorkflowDouble:
    return WorkflowDouble(sqlite_store)


def stored(workflow: WorkflowDouble, name: str, row_id: str) -> dict[str, Any]:
    """The row as the database has it: JSON is text here."""
    wanted = text(f"SELECT * FROM {name} WHERE id = :id")
    row = workflow.store.read(lambda db: db.connection().execute(wanted, {"id": row_id}).first())
    assert row is not None, f"{name} has no such row"
    return dict(row._mapping)


@pytest.mark.req("K-097", "K-101")
def test_a_session_is_stored_when_it_is_made_and_at_every_move(workflow: WorkflowDouble) -> None:
    session = workflow.session()
    row = stored(workflow, "sessions", session)
    assert (row["state"], row["project_id"]) == ("idle", workflow.project_id)
    assert (row["created_by"], row["ended_at"]) == (workflow.operator_id, None)
    assert row["created_at"] == row["updated_at"] > 0
    workflow.begin(session)
    moved = stored(workflow, "sessions", session)
    assert moved["state"] == "running"
    assert moved["updated_at"] >= row["updated_at"]
    assert stored(workflow, "sessions", workflow.fork(session))["forked_from"] == session


@pytest.mark.req("K-097", "K-103", "K-110")
def test_a_run_is_stored_when_it_begins_and_when_it_fails(workflow: WorkflowDouble) -> None:
    session = workflow.session()
    run = workflow.begin(session)
    row = stored(workflow, "runs", run)
    assert (row["session_id"], row["state"], row["completed_at"]) == (session, "running", None)
    why = {"code": "model_error", "message": "no answer"}
    workflow.store.write(
        lambda db: runs.finish(db, run, trigger="run.failed", state="failed", error=why)
    )
    row = stored(workflow, "runs", run)
    assert (row["state"], row["tokens_in"], row["tokens_out"]) == ("failed", 0, 0)
    assert row["error"] == '{"code":"model_error","message":"no answer"}', "JSON is text"
    assert row["duration_ms"] == row["completed_at"] - row["created_at"] >= 0


@pytest.mark.req("K-097", "K-104")
def test_a_subagent_is_stored_when_it_starts_and_when_it_exits(workflow: WorkflowDouble) -> None:
    session = workflow.session()
    run = workflow.begin(session)
    for state, code in (("done", 0), ("failed", 1), ("killed", 137)):
        helper = SubagentInvocation(
            id=new_id(),
            run_id=run,
            session_id=session,
            subagent_name="helper",
            agent_path="primary.subagents.helper",
        )
        workflow.store.write(lambda db, one=helper: invocations.begin(db, one, "go"))  # type: ignore[misc]
        row = stored(workflow, "subagent_invocations", helper.id)
        assert (row["subagent_name"], row["state"]) == ("helper", "running")
        assert row["spawned_at"] > 0
        assert (row["exited_at"], row["exit_code"]) == (None, None)
        workflow.store.write(lambda db, one=helper, end=state: invocations.end(db, one, end))  # type: ignore[misc]
        row = stored(workflow, "subagent_invocations", helper.id)
        assert (row["state"], row["exit_code"]) == (state, code)
        assert row["exited_at"] >= row["spawned_at"]


@pytest.mark.req("K-097", "K-105", "K-110")
def test_a_tool_call_is_stored_when_it_is_made_and_with_its_result(
    workflow: WorkflowDouble,
) -> None:
    session = workflow.session()
    run = workflow.begin(session)
    call_id = workflow.call(session, run, "shell", command="ls")
    row = stored(workflow, "tool_calls", call_id)
    assert (row["run_id"], row["caller"], row["tool_name"]) == (run, "primary", "shell")
    assert (row["state"], row["input"]) == ("pending", '{"command":"ls"}')
    assert (row["output"], row["completed_at"]) == (None, None)
    call = workflow.store.read(lambda db: tool_calls.find(db, call_id))
    assert call is not None
    workflow.store.write(lambda db: tool_calls.close(db, call, text="a", output={"exit_code": 0}))
    row = stored(workflow, "tool_calls", call_id)
    assert (row["state"], row["output"]) == ("done", '{"exit_code":0}')
    assert row["completed_at"] >= row["created_at"] > 0


@pytest.mark.req("K-097", "K-106", "K-110")
def test_a_checkpoint_is_stored_and_what_becomes_of_it(workflow: WorkflowDouble) -> None:
    session = workflow.session()
    run = workflow.begin(session)
    call_id = workflow.call(session, run, "shell", command="ls")
    first = workflow.pause(session, "have a look")
    row = stored(workflow, "checkpoints", first.id)
    assert (row["session_id"], row["run_id"]) == (session, run)
    assert (row["created_by"], row["reason"]) == ("operator", "have a look")
    assert row["created_at"] > 0
    assert f'"{call_id}"' in row["snapshot"], "the calls that were open"
    assert (row["resumed_at"], row["rolled_back"], row["superseded_by"]) == (None, 0, None)
    workflow.resume(session, first.id)
    assert stored(workflow, "checkpoints", first.id)["resumed_at"] >= row["created_at"]
    second = workflow.pause(session)
    workflow.roll_back(session, first.id)
    assert stored(workflow, "checkpoints", first.id)["rolled_back"] == 1
    assert stored(workflow, "checkpoints", second.id)["superseded_by"] == first.id


@pytest.mark.req("K-097", "K-107")
async def test_a_transcript_is_stored_when_its_terminal_closes(workflow: WorkflowDouble) -> None:
    session = workflow.session()
    run = workflow.begin(session)
    pty_id, timed = new_id(), b'{"at_ms": 1, "seq": 1, "data": "bHM="}'
    workflow.store.write(lambda db: ptys.opened(db, Pty(id=pty_id, session_id=session, run_id=run)))
    assert workflow.store.read(lambda db: ptys.transcript_of(db, pty_id)) is None
    over = Transcript(reason="exited", exit_code=0, timed=timed, text="ls", line_count=7)
    assert await ptys.close_with_transcript(workflow.opened, pty_id, over)
    found = workflow.store.read(lambda db: ptys.transcript_of(db, pty_id))
    assert found is not None
    row = stored(workflow, "run_pty_transcripts", found.id)
    assert (row["run_id"], row["pty_id"], row["line_count"]) == (run, pty_id, 7)
    assert row["created_at"] > 0
    assert workflow.opened.blobs.read(row["transcript"]) == timed


@pytest.mark.req("K-097", "K-108")
def test_a_prompt_edit_is_stored_with_both_hashes_and_its_text(workflow: WorkflowDouble) -> None:
    session = workflow.session()
    workflow.begin(session)
    made = workflow.pause(session)
    blobs = workflow.opened.blobs
    edit = workflow.store.write(
        lambda db: prompt_edits.edit(db, blobs, made, "helper", "You help more.")
    )
    row = stored(workflow, "prompt_edits", edit.id)
    assert (row["checkpoint_id"], row["session_id"], row["target"]) == (made.id, session, "helper")
    before, after = (blobs.read(f"sha256:{row[name]}") for name in ("old_hash", "new_hash"))
    assert before == PROMPTS["primary.subagents.helper"].encode()
    assert after.decode() == row["new_content"] == "You help more."
    assert row["edited_at"] >= made.created_at
