"""A disk that is full or a database that takes no writes: plain words, and it goes on after."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from storage.opening import OpenStore
from tests.support.api_server import ApiServer, Caller


def pragma(store: OpenStore, statement: str) -> Any:
    """Ask the one writer connection, outside of any transaction."""
    raw = store.writer.raw_connection()
    try:
        connection: Any = raw.driver_connection
        return connection.execute(f"PRAGMA {statement}").fetchone()
    finally:
        raw.close()


@contextmanager
def full_disk(store: OpenStore) -> Iterator[None]:
    """The database may not grow by a page."""
    pages = pragma(store, "page_count")[0]
    pragma(store, f"max_page_count = {pages}")
    try:
        yield
    finally:
        pragma(store, "max_page_count = 1073741823")


@contextmanager
def read_only(store: OpenStore) -> Iterator[None]:
    """The database may not be changed."""
    pragma(store, "query_only = 1")
    try:
        yield
    finally:
        pragma(store, "query_only = 0")


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
