"""Blobs of a session: they leave and come back with it, and nothing of it stays behind."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

import pytest

from domain.ids import new_id
from domain.transcript import Transcript
from storage import archive, checkpoints, consistency, prompt_edits, ptys, removal, sessions
from storage import blobs as blob_rows
from storage.export_document import document
from storage.import_document import import_document
from storage.opening import OpenStore, open_store
from storage.orphans import collect
from storage.rows import change
from storage.tables_history import Checkpoint, Pty
from tests.support.api_server import ApiServer
from tests.support.desk import Desk

EDITED = "You are careful, and you say why."


def files(store: OpenStore) -> set[Path]:
    """Every blob's file."""
    return {path for path in store.blobs.root.rglob("*") if path.is_file()}


def edit_prompt(desk: Desk, session_id: str) -> Checkpoint:
    """A run that was paused, its prompt edited; still paused."""
    desk.begin(session_id)
    point = desk.pause(session_id)
    blobs = desk.opened.blobs
    desk.store.write(lambda db: prompt_edits.edit(db, blobs, point, "primary", EDITED))
    return point


def move(desk: Desk, session_id: str, elsewhere: Path) -> OpenStore:
    """The session in a store of its own, by way of a file."""
    exported: dict[str, Any] = json.loads(
        json.dumps(
            desk.store.read(
                lambda db: document(db, desk.opened.blobs, sessions.get(db, session_id))
            )
        )
    )
    other = open_store(None, elsewhere, synchronous="OFF")
    import_document(other, "somebody", exported)
    return other


def everything(desk: Desk) -> str:
    """A session in whose history everything happened at least once, at rest again."""
    session = desk.session(title="Everything", source="cli")
    desk.run(session, "one")
    run = desk.begin(session, "two")
    desk.call(session, run, command="ls")
    desk.subagent(session, run)
    point = desk.pause(session)
    blobs = desk.opened.blobs
    desk.store.write(lambda db: prompt_edits.edit(db, blobs, point, "primary", EDITED))
    desk.resume(session)
    desk.finish(run, "answered")
    early = desk.say(session, "to be summed up")
    desk.compact(session, [early.id])
    later = desk.begin(session, "three")
    second = desk.pause(session)
    desk.roll_back(session, second.id)
    assert later
    pty = Pty(id=new_id(), session_id=session)
    timed = blobs.put(b'{"at_ms": 1, "seq": 1, "data": "bHM="}', "application/x-ndjson")
    desk.store.write(lambda db: ptys.opened(db, pty))
    shown = Transcript(reason="exited", exit_code=0, text="ls", line_count=1)
    desk.store.write(lambda db: ptys.closed(db, pty.id, shown, blob_id=blob_rows.commit(db, timed)))
    desk.run(session, "four")
    return session


def exported(desk: Desk, session_id: str) -> dict[str, Any]:
    """The export, as it comes back from a file, without the time it was made."""
    whole = desk.store.read(
        lambda db: document(db, desk.opened.blobs, sessions.get(db, session_id))
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
    desk = Desk(either_store)
    session = everything(desk)
    before, seen = exported(desk, session), desk.seen(session)
    filled = {name for name, rows in before["archive"].items() if rows}
    assert filled >= set(archive.COLLECTIONS) - {"derivations", "calls"}
    stored = files(either_store)
    removal.purge(either_store, session)
    assert files(either_store) == set()
    answer = import_document(either_store, desk.operator_id, before)
    assert answer["imported"]
    after = exported(desk, session)
    # The project is the one that is here now.
    for key in before["archive"]:
        assert after["archive"][key] == before["archive"][key], key
    assert after == before
    assert (files(either_store), desk.seen(session)) == (stored, seen)
    report = consistency.check(either_store, "deep").view()
    assert (report["status"], report["issues"]) == ("ok", [])
    desk.run(session, "and it goes on")
    assert desk.row(session).current_head != before["session"]["current_head"]


@pytest.mark.req("H-039", "H-042")
def test_an_edited_prompt_leaves_and_comes_back_with_its_session(
    sqlite_store: OpenStore, tmp_path: Path
) -> None:
    before = files(sqlite_store)
    desk = Desk(sqlite_store)
    session = desk.session()
    point = edit_prompt(desk, session)
    other = move(desk, session, tmp_path / "other")
    row = other.read(lambda db: sessions.get(db, session))
    assert prompt_edits.text_of(other.blobs, row, "primary") == EDITED
    other.close()
    desk.roll_back(session, point.id)
    removal.purge(sqlite_store, session)
    assert files(sqlite_store) == before


@pytest.mark.req("H-039")
def test_a_fork_of_a_checkpoint_comes_back_with_its_prompts(
    sqlite_store: OpenStore, tmp_path: Path
) -> None:
    desk = Desk(sqlite_store)
    source = desk.session()
    point = edit_prompt(desk, source)
    desk.resume(source)
    later = desk.pause(source)
    fork = desk.fork(source, checkpoint_id=later.id)
    assert point.id != later.id
    other = move(desk, fork, tmp_path / "other")
    row = other.read(lambda db: sessions.get(db, fork))
    assert prompt_edits.text_of(other.blobs, row, "primary") == EDITED
    other.close()


@pytest.mark.req("H-041")
def test_clearing_forgets_the_blobs_too(sqlite_store: OpenStore) -> None:
    desk = Desk(sqlite_store)
    session, neighbour = desk.session(), desk.session()
    before = files(sqlite_store)
    desk.run(session, "secret words")
    kept = desk.run(neighbour, "other words")
    assert files(sqlite_store) > before
    removal.clear_messages(sqlite_store, session, "me")
    assert desk.state(kept)
    removal.purge(sqlite_store, neighbour)
    assert files(sqlite_store) == before


def test_a_blob_that_somebody_stores_again_meanwhile_stays(sqlite_store: OpenStore) -> None:
    desk = Desk(sqlite_store)
    session = desk.session()
    desk.run(session)
    stored = files(sqlite_store)
    later = time.time() + 3_600
    for path in stored:
        os.utime(path, (later, later))
    removal.purge(sqlite_store, session)
    assert files(sqlite_store) == stored
    assert collect(sqlite_store, grace_s=-7_200.0) == len(stored)


@pytest.mark.req("F-019", "K-083")
def test_the_words_of_a_review_are_collected_within_a_day(own_api: ApiServer) -> None:
    caller = own_api.operator()
    desk = Desk(own_api.store)
    session = desk.session(created_by=caller.id)
    desk.begin(session)
    point = desk.pause(session)
    desk.store.write(lambda db: change(db, Checkpoint, point.id, tree_note="no files"))
    before = files(own_api.store)
    path = f"/sessions/{session}/checkpoints/{point.id}/resume"
    caller.http.post(path, json={"compaction": "approve", "summary": "my own words"})
    caller.close()
    (staged,) = files(own_api.store) - before
    assert "my own words" in own_api.store.blobs.read(f"sha256:{staged.name}").decode()
    assert collect(own_api.store) == 0
    assert collect(own_api.store, grace_s=0.0) == 1
    assert files(own_api.store) == before
    assert own_api.store.read(lambda db: checkpoints.get(db, session, point.id)).id == point.id
