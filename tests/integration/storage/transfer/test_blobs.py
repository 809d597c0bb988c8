"""Blobs of a session: they leave and come back with it, and nothing of it stays behind."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

import pytest

from holdfast.domain.ids import new_id
from holdfast.domain.transcript import Transcript
from holdfast.storage.database import blobs as blob_rows
from holdfast.storage.database.opening import OpenStore, open_store
from holdfast.storage.database.rows import change
from holdfast.storage.database.tables_history import Checkpoint, Pty
from holdfast.storage.moves import checkpoints, prompt_edits
from holdfast.storage.sessions import ptys, sessions
from holdfast.storage.transfer import archive
from holdfast.storage.transfer.export_document import document
from holdfast.storage.upkeep import consistency, removal
from holdfast.storage.upkeep.orphans import collect
from tests.support.blob_files import blob_file, blob_ids
from tests.support.imports import import_document
from tests.support.servers.api_server import ApiServer
from tests.support.workflow_double import WorkflowDouble

EDITED = "You are careful, and you say why."


def edit_prompt(workflow: WorkflowDouble, session_id: str) -> Checkpoint:
    """A run that was paused, its prompt edited; still paused."""
    workflow.begin(session_id)
    point = workflow.pause(session_id)
    blobs = workflow.opened.blobs
    workflow.store.write(lambda db: prompt_edits.edit(db, blobs, point, "primary", EDITED))
    return point


def move(workflow: WorkflowDouble, session_id: str, elsewhere: Path) -> OpenStore:
    """The session in a store of its own, by way of a file."""
    exported: dict[str, Any] = json.loads(
        json.dumps(
            workflow.store.read(
                lambda db: document(db, workflow.opened.blobs, sessions.get(db, session_id))
            )
        )
    )
    other = open_store(None, elsewhere, synchronous="OFF")
    import_document(other, "somebody", exported)
    return other


def everything(workflow: WorkflowDouble) -> str:
    """A session in whose history everything happened at least once, at rest again."""
    session = workflow.session(title="Everything", source="cli")
    workflow.run(session, "one")
    run = workflow.begin(session, "two")
    workflow.call(session, run, command="ls")
    workflow.subagent(session, run)
    point = workflow.pause(session)
    blobs = workflow.opened.blobs
    workflow.store.write(lambda db: prompt_edits.edit(db, blobs, point, "primary", EDITED))
    workflow.resume(session)
    workflow.finish(run, "answered")
    early = workflow.say(session, "to be summed up")
    workflow.compact(session, [early.id])
    later = workflow.begin(session, "three")
    second = workflow.pause(session)
    workflow.roll_back(session, second.id)
    assert later
    pty = Pty(id=new_id(), session_id=session)
    timed = blobs.put(b'{"at_ms": 1, "seq": 1, "data": "bHM="}', "application/x-ndjson")
    workflow.store.write(lambda db: ptys.opened(db, pty))
    shown = Transcript(reason="exited", exit_code=0, text="ls", line_count=1)
    workflow.store.write(
        lambda db: ptys.closed(db, pty.id, shown, blob_id=blob_rows.commit(db, timed))
    )
    workflow.run(session, "four")
    return session


def exported(workflow: WorkflowDouble, session_id: str) -> dict[str, Any]:
    """The export, as it comes back from a file, without the time it was made."""
    whole = workflow.store.read(
        lambda db: document(db, workflow.opened.blobs, sessions.get(db, session_id))
    )
    loaded: dict[str, Any] = json.loads(json.dumps(whole))
    del loaded["exported_at"]
    # The database numbers these itself, and never gives a number twice.
    for name in ("messages", "supersessions"):
        for row in loaded["archive"][name]:
            del row["number"]
    return loaded


@pytest.mark.req("H-039", "H-042", "F-023")
def test_a_purged_session_comes_back_from_its_export_bit_for_bit(
    either_store: OpenStore,
) -> None:
    workflow = WorkflowDouble(either_store)
    session = everything(workflow)
    before, seen = exported(workflow, session), workflow.seen(session)
    filled = {name for name, rows in before["archive"].items() if rows}
    assert filled >= set(archive.COLLECTIONS) - {"derivations", "calls"}
    stored = blob_ids(either_store)
    removal.purge(either_store, session)
    assert blob_ids(either_store) == set()
    answer = import_document(either_store, workflow.operator_id, before)
    assert answer["imported"]
    after = exported(workflow, session)
    # The project is the one that is here now.
    for key in before["archive"]:
        assert after["archive"][key] == before["archive"][key], key
    assert after == before
    assert (blob_ids(either_store), workflow.seen(session)) == (stored, seen)
    report = consistency.check(either_store, "deep").view()
    assert (report["status"], report["issues"]) == ("ok", [])
    workflow.run(session, "and it goes on")
    assert workflow.row(session).current_head != before["session"]["current_head"]


@pytest.mark.req("H-039", "H-042")
def test_an_edited_prompt_leaves_and_comes_back_with_its_session(
    sqlite_store: OpenStore, tmp_path: Path
) -> None:
    before = blob_ids(sqlite_store)
    workflow = WorkflowDouble(sqlite_store)
    session = workflow.session()
    point = edit_prompt(workflow, session)
    other = move(workflow, session, tmp_path / "other")
    row = other.read(lambda db: sessions.get(db, session))
    assert prompt_edits.text_of(other.blobs, row, "primary") == EDITED
    other.close()
    workflow.roll_back(session, point.id)
    removal.purge(sqlite_store, session)
    assert blob_ids(sqlite_store) == before


@pytest.mark.req("H-039")
def test_a_fork_of_a_checkpoint_comes_back_with_its_prompts(
    sqlite_store: OpenStore, tmp_path: Path
) -> None:
    workflow = WorkflowDouble(sqlite_store)
    source = workflow.session()
    point = edit_prompt(workflow, source)
    workflow.resume(source)
    later = workflow.pause(source)
    fork = workflow.fork(source, checkpoint_id=later.id)
    assert point.id != later.id
    other = move(workflow, fork, tmp_path / "other")
    row = other.read(lambda db: sessions.get(db, fork))
    assert prompt_edits.text_of(other.blobs, row, "primary") == EDITED
    other.close()


@pytest.mark.req("H-041")
def test_clearing_forgets_the_blobs_too(sqlite_store: OpenStore) -> None:
    workflow = WorkflowDouble(sqlite_store)
    session, neighbour = workflow.session(), workflow.session()
    before = blob_ids(sqlite_store)
    workflow.run(session, "secret words")
    kept = workflow.run(neighbour, "other words")
    assert blob_ids(sqlite_store) > before
    removal.clear_messages(sqlite_store, session, "me")
    assert workflow.state(kept)
    removal.purge(sqlite_store, neighbour)
    assert blob_ids(sqlite_store) == before


def test_a_blob_that_somebody_stores_again_meanwhile_stays(sqlite_store: OpenStore) -> None:
    workflow = WorkflowDouble(sqlite_store)
    session = workflow.session()
    workflow.run(session)
    stored = blob_ids(sqlite_store)
    later = time.time() + 3_600
    for blob_id in stored:
        os.utime(blob_file(sqlite_store, blob_id), (later, later))
    removal.purge(sqlite_store, session)
    assert blob_ids(sqlite_store) == stored
    assert collect(sqlite_store, grace_s=-7_200.0) == len(stored)


@pytest.mark.req("F-019", "K-083")
def test_the_words_of_a_review_are_collected_within_a_day(own_api: ApiServer) -> None:
    caller = own_api.operator()
    workflow = WorkflowDouble(own_api.store)
    session = workflow.session(created_by=caller.id)
    workflow.begin(session)
    point = workflow.pause(session)
    workflow.store.write(lambda db: change(db, Checkpoint, point.id, tree_note="no files"))
    before = blob_ids(own_api.store)
    path = f"/sessions/{session}/checkpoints/{point.id}/resume"
    caller.http.post(path, json={"compaction": "approve", "summary": "my own words"})
    caller.close()
    (staged,) = blob_ids(own_api.store) - before
    assert "my own words" in own_api.store.blobs.read(staged).decode()
    assert collect(own_api.store) == 0
    assert collect(own_api.store, grace_s=0.0) == 1
    assert blob_ids(own_api.store) == before
    assert own_api.store.read(lambda db: checkpoints.get(db, session, point.id)).id == point.id
