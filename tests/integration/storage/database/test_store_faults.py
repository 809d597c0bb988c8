"""A disk that is full or a database that takes no writes: plain words, and it goes on after."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.servers.api_server import ApiServer, Caller
from tests.support.unwritable_store import full_disk, read_only


@pytest.fixture
def somebody(own_api: ApiServer) -> Iterator[Caller]:
    caller = own_api.operator()
    yield caller
    caller.close()


def test_a_full_disk_is_said_and_nothing_that_was_taken_is_lost(
    own_api: ApiServer, somebody: Caller, tmp_path: Path
) -> None:
    session = somebody.session(somebody.project(tmp_path / "work")["id"])
    big = "x" * 900_000
    with full_disk(own_api.store):
        answer = somebody.send(session["id"], big)
        assert answer.status_code == 503
        assert answer.json()["error"]["message"] == "cannot write: the disk is full"
        assert somebody.http.get(f"/sessions/{session['id']}").json()["state"] == "idle"
    assert somebody.send(session["id"], big).status_code == 202
    stored = somebody.http.get(f"/sessions/{session['id']}/messages").json()["items"]
    assert [len(one["content"]) for one in stored] == [900_000]


def test_a_read_only_database_still_answers_questions(
    own_api: ApiServer, somebody: Caller, tmp_path: Path
) -> None:
    session = somebody.session(somebody.project(tmp_path / "work")["id"])
    with read_only(own_api.store):
        answer = somebody.send(session["id"], "hello")
        assert answer.status_code == 503
        assert answer.json()["error"]["message"] == "cannot write: the database is read-only"
        assert somebody.http.get("/sessions").status_code == 200
    assert somebody.send(session["id"], "hello").status_code == 202
