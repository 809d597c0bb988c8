"""Several who write one file: short waits, repeats at different moments, everybody's turn."""

from __future__ import annotations

import fcntl
import os
import threading
import time
from pathlib import Path
from random import Random

import pytest
from sqlalchemy import text
from sqlalchemy.exc import OperationalError

from holdfast.storage.database import engine
from holdfast.storage.database.engine import Db
from holdfast.storage.database.opening import OpenStore
from holdfast.storage.database.sqlite_driver import dbapi_module
from holdfast.storage.database.write_lock import WriteLock
from tests.support.sample_library import SampleLibrary
from tests.support.waiting import wait_for

GUARD_S = 30.0


class NotedPauses(Random):
    """Draws pauses as the store does, and says when the second was drawn."""

    def __init__(self) -> None:
        super().__init__()
        self.pauses: list[float] = []
        self.repeated = threading.Event()

    def uniform(self, a: float, b: float) -> float:
        self.pauses.append(super().uniform(a, b))
        if len(self.pauses) > 1:
            self.repeated.set()
        return self.pauses[-1]


class Stranger:
    """Another program with the same file open, which does not know our lock."""

    def __init__(self, store: OpenStore) -> None:
        path = str(store.home / "holdfast.sqlite")
        self._connection = dbapi_module().connect(
            path, timeout=0, isolation_level=None, check_same_thread=False
        )

    def say(self, *statements: str) -> None:
        for statement in statements:
            self._connection.execute(statement)

    def close(self) -> None:
        self._connection.close()


def is_taken(path: Path) -> bool:
    """Whether somebody holds the lock of this file."""
    file = os.open(path, os.O_RDWR)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    else:
        return False
    finally:
        os.close(file)


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> NotedPauses:
    noted = NotedPauses()
    monkeypatch.setattr(engine, "_random", noted)
    return noted


@pytest.mark.req("H-018", "H-019", "H-022")
def test_a_write_that_finds_the_file_taken_gives_up_after_a_second_and_tries_again(
    sqlite_store: OpenStore, pauses: NotedPauses
) -> None:
    library = SampleLibrary(sqlite_store)
    session = library.session()
    stranger = Stranger(sqlite_store)
    stranger.say("BEGIN IMMEDIATE")
    said: list[str] = []
    writer = threading.Thread(target=lambda: said.append(library.say(session, "patience").id))
    writer.start()
    try:
        # SQLite's own wait, were it of 30 seconds, would not come to a second attempt by then.
        assert pauses.repeated.wait(15), "the write was not tried again"
    finally:
        stranger.say("ROLLBACK")
        stranger.close()
        writer.join(GUARD_S)
    assert library.found("patience") == set(said)
    assert all(0.020 <= pause <= 0.150 for pause in pauses.pauses)
    assert len(set(pauses.pauses)) == len(pauses.pauses), "two who wait would meet again"


@pytest.mark.req("H-019")
def test_a_write_is_tried_fifteen_times(sqlite_store: OpenStore) -> None:
    attempts: list[int] = []

    def work(db: Db) -> str:
        attempts.append(1)
        if len(attempts) < 15:
            # What SQLite says at once of a table that a statement of the same process reads.
            raise OperationalError("", {}, Exception("database table is locked"))
        return "written"

    assert sqlite_store.write(work) == "written"
    assert engine.WRITE_BUDGET_S >= 15 * (1.0 + 0.150), "each attempt may wait a second before"


@pytest.mark.req("H-020")
def test_a_write_takes_the_file_before_its_first_statement(sqlite_store: OpenStore) -> None:
    SampleLibrary(sqlite_store)
    stranger = Stranger(sqlite_store)

    def work(db: Db) -> str:
        db.connection()
        with pytest.raises(dbapi_module().OperationalError, match="locked"):
            stranger.say("BEGIN IMMEDIATE")
        return "alone"

    try:
        assert sqlite_store.write(work) == "alone"
        stranger.say("BEGIN IMMEDIATE", "ROLLBACK")
    finally:
        stranger.close()


@pytest.mark.req("H-001", "H-022")
def test_who_reads_neither_waits_for_the_writer_nor_holds_it_up(sqlite_store: OpenStore) -> None:
    library = SampleLibrary(sqlite_store)
    session = library.session()
    counted = text("SELECT count(*) FROM messages")
    readers = [sqlite_store.reader.connect() for _ in range(3)]
    try:
        assert [reader.execute(counted).scalar() for reader in readers] == [0, 0, 0]
        library.say(session, "written while three read")
        assert [reader.execute(counted).scalar() for reader in readers] == [0, 0, 0]
    finally:
        for reader in readers:
            reader.close()

    def work(db: Db) -> object:
        db.connection().execute(text("DELETE FROM messages"))
        return sqlite_store.read(lambda other: other.connection().execute(counted).scalar())

    assert sqlite_store.write(work) == 1


@pytest.mark.req("H-022")
def test_who_just_wrote_lets_the_one_who_waits_go_first(tmp_path: Path) -> None:
    path = tmp_path / "file.lock"
    mine, theirs = WriteLock(path), WriteLock(path)
    deadline = time.monotonic() + GUARD_S
    order: list[str] = []
    waiting = threading.Event()

    def wait_for_it() -> None:
        waiting.set()
        with theirs.held(deadline):
            order.append("theirs")

    other = threading.Thread(target=wait_for_it)
    with mine.held(deadline):
        order.append("mine")
        other.start()
        assert waiting.wait(GUARD_S)
        wait_for(lambda: is_taken(path.with_name("file.lock.turn")), "the other to be next")
    with mine.held(deadline):
        order.append("mine again")
    other.join(GUARD_S)
    mine.close()
    theirs.close()
    assert order == ["mine", "theirs", "mine again"]
