"""Heads: immutable states whose cost follows the change and whose parts add up."""

from __future__ import annotations

import pytest

from domain.canonical import canonical, sha256
from domain.errors import NotFound
from storage import heads
from storage.opening import OpenStore
from storage.rows import change, insert_once
from storage.tables import Call, SubagentInvocation
from tests.support.desk import Desk, comparable


@pytest.fixture
def desk(sqlite_store: OpenStore) -> Desk:
    return Desk(sqlite_store)


@pytest.fixture
def either_desk(either_store: OpenStore) -> Desk:
    return Desk(either_store)


@pytest.mark.req("F-027", "F-028", "F-009", "F-034")
def test_a_finished_run_leaves_a_head_that_names_its_state(desk: Desk) -> None:
    session_id = desk.session()
    head_id = desk.run(session_id)
    head = desk.head(head_id)
    root = heads.root(desk.opened.blobs, head_id)
    assert desk.row(session_id).current_head == head_id
    assert sha256(canonical(root)) == head_id
    assert root["version"] == 2
    assert set(root["collections"]) == set(heads.COLLECTIONS)
    assert root["collections"]["messages"]["count"] == 2
    assert root["counters"]["messages"] == 2
    assert head.final_summary == "done"
    assert head.basis is None
    assert comparable(desk.state(head_id)) == desk.state_in_tables(session_id)


@pytest.mark.req("F-032", "F-029")
def test_each_head_builds_on_the_one_before(desk: Desk) -> None:
    session_id = desk.session()
    first = desk.run(session_id)
    second = desk.run(session_id)
    assert desk.head(second).basis == first
    root = heads.root(desk.opened.blobs, second)
    part = root["collections"]["messages"]
    assert part["basis"] == first
    assert len(part["delta"]["append"]) == 2
    assert part["count"] == 4
    assert list(desk.state(second)["heads"]) == [first]


def test_one_run_has_one_head(desk: Desk) -> None:
    session_id = desk.session()
    run_id = desk.begin(session_id)
    head_id = desk.finish(run_id)
    again = desk.store.write(
        lambda db: heads.create(db, desk.opened.blobs, session_id, run_id=run_id)
    )
    assert again == head_id


@pytest.mark.req("F-032", "K-067")
def test_after_a_rollback_the_next_head_builds_on_the_checkpoints(either_desk: Desk) -> None:
    desk = either_desk
    session_id = desk.session()
    run_id = desk.begin(session_id)
    made = desk.pause(session_id)
    desk.resume(session_id)
    abandoned = desk.finish(run_id)
    desk.roll_back(session_id, made.id)
    assert desk.row(session_id).current_head == made.head_id
    fresh = desk.run(session_id)
    assert desk.head(fresh).basis == made.head_id
    assert comparable(desk.state(fresh)) == desk.state_in_tables(session_id)
    assert set(desk.state(fresh)["heads"]) == {made.head_id, abandoned}


@pytest.mark.req("F-013", "F-014", "F-029")
def test_what_was_open_at_one_head_is_replaced_in_the_next(desk: Desk) -> None:
    session_id = desk.session()
    run_id = desk.begin(session_id)
    call = Call(id="call", session_id=session_id, run_id=run_id, model="m", provider="p")
    desk.store.write(lambda db: insert_once(db, Call, call.model_dump()))
    helper = desk.subagent(session_id, run_id)
    made = desk.pause(session_id)
    assert made.head_id is not None
    before = desk.state(made.head_id)
    assert before["calls"]["call"]["status"] == "started"
    assert before["invocations"][helper]["state"] == "running"
    desk.store.write(lambda db: change(db, Call, "call", status="done", completed_at=1))
    desk.store.write(lambda db: change(db, SubagentInvocation, helper, state="done"))
    desk.resume(session_id)
    after = desk.finish(run_id)
    parts = heads.root(desk.opened.blobs, after)["collections"]
    assert [entry["id"] for entry in parts["calls"]["delta"]["replace"]] == ["call"]
    assert parts["calls"]["count"] == 1
    assert comparable(desk.state(after)) == desk.state_in_tables(session_id)
    assert heads.root(desk.opened.blobs, desk.run(session_id))["collections"]["calls"] == {
        "count": 1,
        "basis": after,
        "delta": None,
        "delta_ref": None,
    }


@pytest.mark.req("F-033")
def test_a_forks_first_head_has_no_basis_and_holds_what_it_inherits(either_desk: Desk) -> None:
    desk = either_desk
    source = desk.session()
    source_head = desk.run(source)
    fork = desk.fork(source)
    desk.run(source)
    head_id = desk.run(fork)
    assert desk.head(head_id).basis is None
    root = heads.root(desk.opened.blobs, head_id)
    assert root["collections"]["messages"]["basis"] == source_head
    assert comparable(desk.state(head_id)) == desk.state_in_tables(fork)
    assert len(desk.state(head_id)["messages"]) == 4


def test_a_fork_of_a_running_source_inherits_what_no_head_holds_yet(desk: Desk) -> None:
    source = desk.session()
    desk.begin(source, "not answered yet")
    fork = desk.fork(desk.fork(source))
    head_id = desk.run(fork)
    assert comparable(desk.state(head_id)) == desk.state_in_tables(fork)
    assert len(desk.state(head_id)["messages"]) == 3


@pytest.mark.req("F-029", "F-030")
def test_a_large_delta_lies_in_a_blob_of_its_own(sqlite_store: OpenStore) -> None:
    desk = Desk(sqlite_store)
    session_id = desk.session()
    desk.fill(session_id, 200)
    head_id = desk.run(session_id)
    part = heads.root(desk.opened.blobs, head_id)["collections"]["messages"]
    assert part["delta"] is None
    assert part["delta_ref"] is not None
    assert comparable(desk.state(head_id)) == desk.state_in_tables(session_id)


@pytest.mark.req("F-028")
def test_a_head_grows_with_the_change_and_not_with_the_history(sqlite_store: OpenStore) -> None:
    desk = Desk(sqlite_store)

    def size_after(count: int) -> int:
        session_id = desk.session()
        desk.fill(session_id, count)
        desk.run(session_id)
        return len(canonical(heads.root(desk.opened.blobs, desk.run(session_id))))

    assert size_after(60) < size_after(1) + 200


def test_a_head_of_another_session_is_not_found(desk: Desk) -> None:
    head_id = desk.run(desk.session())
    other = desk.session()
    with pytest.raises(NotFound):
        desk.store.read(lambda db: heads.get(db, other, head_id))
