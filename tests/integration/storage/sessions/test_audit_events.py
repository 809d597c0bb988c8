"""Audit events carry the values of what happened, field by field."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from holdfast.domain.ids import new_id
from holdfast.domain.transcript import Transcript
from holdfast.storage.database.opening import OpenStore
from holdfast.storage.database.tables_history import Pty
from holdfast.storage.log import events
from holdfast.storage.moves import forks, prompt_edits
from holdfast.storage.sessions import ptys
from holdfast.storage.upkeep import removal
from tests.support.servers.api_server import ApiServer, Caller
from tests.support.workflow_double import WorkflowDouble


def told(store: OpenStore, session_id: str, kind: str) -> dict[str, Any]:
    """The data of the session's newest event of this kind."""
    rows = store.read(lambda db: events.after(db, session_id, 0, limit=500))
    data: dict[str, Any] = [row.data for row in rows if row.kind == kind][-1]
    return data


@pytest.mark.req("K-131", "K-121")
def test_what_is_queued_discarded_and_resumed_is_told_with_its_numbers(
    api: ApiServer, caller: Caller, tmp_path: Path
) -> None:
    project = caller.project(tmp_path / "one", "project: one\nlimits: {running_sessions: 1}\n")
    first, second = (caller.session(project["id"])["id"] for _ in range(2))
    assert told(api.store, second, "session.created") == {
        "session_id": second,
        "project_id": project["id"],
        "user_id": caller.id,
        "forked_from": None,
    }
    caller.send(first)
    queued = caller.send(second).json()
    run_id, message_id = queued["run"]["id"], queued["message"]["id"]
    assert told(api.store, second, "session.queued") == {
        "session_id": second,
        "run_id": run_id,
        "message_id": message_id,
        "reason": "per_project",
        "running_count": 1,
        "limit": 1,
    }
    caller.http.delete(f"/sessions/{second}/queued-message")
    assert told(api.store, second, "session.queued_discarded") == {
        "session_id": second,
        "run_id": run_id,
        "message_id": message_id,
        "user_id": caller.id,
    }
    again = caller.send(second).json()["run"]["id"]
    api.double.finish(first)
    caller.http.post(f"/sessions/{second}/resume")
    assert told(api.store, second, "session.resumed_from_queue") == {
        "session_id": second,
        "run_id": again,
        "user_id": caller.id,
        "running_count": 1,
    }


@pytest.mark.req("K-131", "H-035")
def test_a_fork_tells_where_it_comes_from(sqlite_store: OpenStore) -> None:
    workflow = WorkflowDouble(sqlite_store)
    source = workflow.session()
    workflow.run(source)
    fork = workflow.fork(source)
    assert told(sqlite_store, fork, "session.created")["forked_from"] == source
    assert sqlite_store.read(lambda db: forks.kept_for_forks(db, source)) is not None


@pytest.mark.req("K-133")
def test_checkpoints_and_edits_are_told_with_their_hashes(sqlite_store: OpenStore) -> None:
    workflow = WorkflowDouble(sqlite_store)
    session = workflow.session()
    workflow.begin(session)
    point = workflow.pause(session, "look closer")
    assert told(sqlite_store, session, "checkpoint.created") == {
        "checkpoint_id": point.id,
        "session_id": session,
        "created_by": "operator",
        "reason": "look closer",
    }
    blobs = sqlite_store.blobs
    edit = sqlite_store.write(lambda db: prompt_edits.edit(db, blobs, point, "primary", "Anew."))
    edited = {"target": "primary", "old_hash": edit.old_hash, "new_hash": edit.new_hash}
    assert edit.old_hash != edit.new_hash
    assert told(sqlite_store, session, "prompt.edited") == {"checkpoint_id": point.id, **edited}
    workflow.resume(session)
    resumed = told(sqlite_store, session, "checkpoint.resumed")
    assert (resumed["checkpoint_id"], resumed["prompts_edited"]) == (point.id, 1)
    said = workflow.say(session, "to be taken back")
    later = workflow.pause(session)
    workflow.roll_back(session, point.id)
    back = told(sqlite_store, session, "checkpoint.rolled_back")
    assert (back["checkpoint_id"], back["session_id"]) == (point.id, session)
    assert back["messages_superseded"] >= 1
    assert said.content not in workflow.texts(session)
    assert later.id != point.id


@pytest.mark.req("K-134")
def test_a_terminal_is_told_when_it_opens_and_closes(sqlite_store: OpenStore) -> None:
    session, pty_id = WorkflowDouble(sqlite_store).session(), new_id()
    pty = Pty(id=pty_id, session_id=session, subagent="helper")
    sqlite_store.write(lambda db: ptys.opened(db, pty))
    assert told(sqlite_store, session, "pty.allocated") == {
        "pty_id": pty_id,
        "session_id": session,
        "subagent_name": "helper",
    }
    over = Transcript(reason="exited", line_count=7)
    for is_first in (True, False):
        done = sqlite_store.write(lambda db: ptys.closed(db, pty_id, over, blob_id=None))
        assert done is is_first
    assert told(sqlite_store, session, "pty.closed") == {
        "pty_id": pty_id,
        "reason": "exited",
        "transcript_lines": 7,
    }


@pytest.mark.req("H-041", "H-046")
def test_whoever_listens_hears_of_an_end_and_of_a_reset(
    api: ApiServer, caller: Caller, tmp_path: Path
) -> None:
    """What Hermes calls hooks are events here; a subagent's is proven with subagents."""
    session = caller.session(caller.project(tmp_path / "one")["id"])["id"]
    caller.send(session)
    api.double.finish(session)
    assert removal.clear_messages(api.store, session, caller.id) == 1
    cleared = told(api.store, session, "session.cleared")
    assert cleared == {"session_id": session, "user_id": caller.id, "messages": 1}
    caller.http.delete(f"/sessions/{session}?confirm=true")
    ended = told(api.store, session, "session.ended")
    assert (ended["session_id"], ended["user_id"]) == (session, caller.id)
