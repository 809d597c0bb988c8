"""Hosts in the database: states, candidates, and who takes over from whom."""

from __future__ import annotations

from functools import partial

from holdfast.domain.ids import new_id
from holdfast.storage.database.opening import OpenStore
from holdfast.storage.database.rows import change
from holdfast.storage.database.tables_hosts import HostRow
from holdfast.storage.hosts import executions, hosts
from holdfast.storage.hosts.hosts import AWAY_AFTER_MS, Seen
from holdfast.storage.sessions import sessions
from tests.support.sample_library import SampleLibrary


def seen(name: str, epoch: int = 1) -> Seen:
    return Seen(id=name, name=name, epoch=epoch, address="", task_queue=f"q-{name}", version="1")


def register(store: OpenStore, *names: str) -> None:
    for name in names:
        store.write(partial(hosts.register, seen=seen(name)))


def test_a_host_that_is_registered_again_keeps_its_drain_and_forgets_that_it_left(
    either_store: OpenStore,
) -> None:
    register(either_store, "one")
    either_store.write(lambda db: hosts.drain(db, "one", draining=True))
    either_store.write(lambda db: hosts.leave(db, "one"))
    either_store.write(lambda db: hosts.register(db, seen("one", epoch=7)))
    row = either_store.read(lambda db: hosts.get(db, "one"))
    assert (row.draining, row.leaving, row.epoch) == (True, False, 7)


def test_a_silent_host_is_told_of_once_and_once_when_it_is_back(either_store: OpenStore) -> None:
    register(either_store, "one")
    assert either_store.write(hosts.newly_away) == []
    row = either_store.read(lambda db: hosts.get(db, "one"))
    before = row.seen_at - 2 * AWAY_AFTER_MS
    either_store.write(lambda db: change(db, HostRow, "one", seen_at=before))
    assert either_store.write(hosts.newly_away) == [("one", "one")]
    assert either_store.write(hosts.newly_away) == []
    assert either_store.read(hosts.candidates) == []
    either_store.write(lambda db: hosts.beat(db, "one"))
    assert either_store.write(lambda db: hosts.newly_back(db, "one"))
    assert not either_store.write(lambda db: hosts.newly_back(db, "one"))


def test_a_session_that_has_a_host_is_not_given_to_another(postgres_store: OpenStore) -> None:
    register(postgres_store, "one", "two")
    session = SampleLibrary(postgres_store).session()
    assert postgres_store.write(lambda db: hosts.give(db, session, "one")) == "one"
    assert postgres_store.write(lambda db: hosts.give(db, session, "two")) == "one"
    assert [one.id for one in postgres_store.read(hosts.candidates)] == ["two", "one"]


def test_a_home_without_its_old_terminal_host_goes_on_with_the_new_one(
    sqlite_store: OpenStore,
) -> None:
    session, call = SampleLibrary(sqlite_store).session(), new_id()
    register(sqlite_store, "old")
    sqlite_store.write(lambda db: hosts.give(db, session, "old"))
    sqlite_store.write(lambda db: executions.claim(db, call, session, "old", 1))
    register(sqlite_store, "new")
    assert sqlite_store.read(lambda db: sessions.get(db, session)).host_id == "new"
    assert [one.id for one in sqlite_store.read(hosts.everywhere)] == ["new"]
    found = sqlite_store.read(lambda db: executions.find(db, call))
    assert found is not None
    assert found.state == "lost"
