"""Heads: immutable states whose cost follows the change and whose parts add up."""

from __future__ import annotations

import pytest

from holdfast.domain.canonical import canonical, sha256
from holdfast.domain.errors import NotFound
from holdfast.storage.database.opening import OpenStore
from holdfast.storage.database.rows import change, insert_once
from holdfast.storage.database.tables import Call, SubagentInvocation
from holdfast.storage.log import events
from holdfast.storage.moves import heads
from tests.support.workflow_double import WorkflowDouble, comparable


@pytest.fixture
def workflow(sqlite_store: OpenStore) -> WorkflowDouble:
    return WorkflowDouble(sqlite_store)


@pytest.fixture
def either_workflow(either_store: OpenStore) -> WorkflowDouble:
    return WorkflowDouble(either_store)


@pytest.mark.req("F-027", "F-028", "F-009", "F-034")
def test_a_finished_run_leaves_a_head_that_names_its_state(workflow: WorkflowDouble) -> None:
    session_id = workflow.session()
    head_id = workflow.run(session_id)
    head = workflow.head(head_id)
    root = heads.root(workflow.opened.blobs, head_id)
    assert workflow.row(session_id).current_head == head_id
    assert sha256(canonical(root)) == head_id
    assert root["version"] == 2
    assert set(root["collections"]) == set(heads.COLLECTIONS)
    assert root["collections"]["messages"]["count"] == 2
    row = workflow.row(session_id)
    assert root["counters"] == {
        "messages": 2,
        "changes": row.change_seq,
        "events": root["counters"]["events"],
        "runs": 1,
        "heads": 1,
    }
    assert 0 < root["counters"]["events"] <= row.event_seq
    assert head.final_summary == "done"
    assert head.basis is None
    assert comparable(workflow.state(head_id)) == workflow.state_in_tables(session_id)


@pytest.mark.req("F-032", "F-029")
def test_each_head_builds_on_the_one_before(workflow: WorkflowDouble) -> None:
    session_id = workflow.session()
    first = workflow.run(session_id)
    second = workflow.run(session_id)
    assert workflow.head(second).basis == first
    root = heads.root(workflow.opened.blobs, second)
    part = root["collections"]["messages"]
    assert part["basis"] == first
    assert len(part["delta"]["append"]) == 2
    assert part["count"] == 4
    assert list(workflow.state(second)["heads"]) == [first]


def test_one_run_has_one_head(workflow: WorkflowDouble) -> None:
    session_id = workflow.session()
    run_id = workflow.begin(session_id)
    head_id = workflow.finish(run_id)
    again = workflow.store.write(
        lambda db: heads.create(db, workflow.opened.blobs, session_id, run_id=run_id)
    )
    assert again == head_id


@pytest.mark.req("F-031", "F-032", "K-067")
def test_after_a_rollback_the_next_head_builds_on_the_checkpoints(
    either_workflow: WorkflowDouble,
) -> None:
    workflow = either_workflow
    session_id = workflow.session()
    run_id = workflow.begin(session_id)
    made = workflow.pause(session_id)
    workflow.resume(session_id)
    abandoned = workflow.finish(run_id)
    workflow.roll_back(session_id, made.id)
    assert workflow.row(session_id).current_head == made.head_id
    fresh = workflow.run(session_id)
    assert workflow.head(fresh).basis == made.head_id
    assert comparable(workflow.state(fresh)) == workflow.state_in_tables(session_id)
    assert set(workflow.state(fresh)["heads"]) == {made.head_id, abandoned}


@pytest.mark.req("F-013", "F-014", "F-029")
def test_what_was_open_at_one_head_is_replaced_in_the_next(workflow: WorkflowDouble) -> None:
    session_id = workflow.session()
    run_id = workflow.begin(session_id)
    call = Call(id="call", session_id=session_id, run_id=run_id, model="m", provider="p")
    workflow.store.write(lambda db: insert_once(db, Call, call.model_dump()))
    helper = workflow.subagent(session_id, run_id)
    made = workflow.pause(session_id)
    assert made.head_id is not None
    before = workflow.state(made.head_id)
    assert before["calls"]["call"]["status"] == "started"
    assert before["invocations"][helper]["state"] == "running"
    workflow.store.write(lambda db: change(db, Call, "call", status="done", completed_at=1))
    workflow.store.write(lambda db: change(db, SubagentInvocation, helper, state="done"))
    workflow.resume(session_id)
    after = workflow.finish(run_id)
    parts = heads.root(workflow.opened.blobs, after)["collections"]
    assert [entry["id"] for entry in parts["calls"]["delta"]["replace"]] == ["call"]
    assert parts["calls"]["count"] == 1
    assert comparable(workflow.state(after)) == workflow.state_in_tables(session_id)
    assert heads.root(workflow.opened.blobs, workflow.run(session_id))["collections"]["calls"] == {
        "count": 1,
        "basis": after,
        "delta": None,
        "delta_ref": None,
    }


@pytest.mark.req("F-033")
def test_a_forks_first_head_has_no_basis_and_holds_what_it_inherits(
    either_workflow: WorkflowDouble,
) -> None:
    workflow = either_workflow
    source = workflow.session()
    source_head = workflow.run(source)
    fork = workflow.fork(source)
    workflow.run(source)
    head_id = workflow.run(fork)
    assert workflow.head(head_id).basis is None
    root = heads.root(workflow.opened.blobs, head_id)
    assert root["collections"]["messages"]["basis"] == source_head
    assert comparable(workflow.state(head_id)) == workflow.state_in_tables(fork)
    assert len(workflow.state(head_id)["messages"]) == 4


def test_a_fork_of_a_running_source_inherits_what_no_head_holds_yet(
    workflow: WorkflowDouble,
) -> None:
    source = workflow.session()
    workflow.begin(source, "not answered yet")
    fork = workflow.fork(workflow.fork(source))
    head_id = workflow.run(fork)
    assert comparable(workflow.state(head_id)) == workflow.state_in_tables(fork)
    assert len(workflow.state(head_id)["messages"]) == 3


@pytest.mark.req("F-029", "F-030")
def test_a_large_delta_lies_in_a_blob_of_its_own(sqlite_store: OpenStore) -> None:
    workflow = WorkflowDouble(sqlite_store)
    session_id = workflow.session()
    workflow.fill(session_id, 200)
    head_id = workflow.run(session_id)
    part = heads.root(workflow.opened.blobs, head_id)["collections"]["messages"]
    assert part["delta"] is None
    assert part["delta_ref"] is not None
    assert comparable(workflow.state(head_id)) == workflow.state_in_tables(session_id)


@pytest.mark.req("F-028")
def test_a_head_grows_with_the_change_and_not_with_the_history(sqlite_store: OpenStore) -> None:
    workflow = WorkflowDouble(sqlite_store)

    def size_after(count: int) -> int:
        session_id = workflow.session()
        workflow.fill(session_id, count)
        workflow.run(session_id)
        return len(canonical(heads.root(workflow.opened.blobs, workflow.run(session_id))))

    assert size_after(60) < size_after(1) + 200


def test_a_head_of_another_session_is_not_found(workflow: WorkflowDouble) -> None:
    head_id = workflow.run(workflow.session())
    other = workflow.session()
    with pytest.raises(NotFound):
        workflow.store.read(lambda db: heads.get(db, other, head_id))


def test_a_heads_record_says_what_it_holds(workflow: WorkflowDouble) -> None:
    session_id = workflow.session()
    early = workflow.say(session_id, "early")
    workflow.compact(session_id, [early.id])
    run_id = workflow.begin(session_id)
    made = workflow.pause(session_id)
    workflow.resume(session_id)
    head = workflow.head(workflow.finish(run_id))
    assert head.fingerprint == head.id
    assert head.state_ref == f"sha256:{head.id}"
    session = workflow.row(session_id)
    assert session.change_seq > 0
    assert (head.change, head.message_seq) == (session.change_seq, session.message_seq)
    (listed,) = workflow.state(head.id)["heads"].values()
    assert listed == {
        "id": made.head_id,
        "number": 1,
        "basis": None,
        "run_id": None,
        "checkpoint_id": made.id,
    }
    log = workflow.store.read(lambda db: events.after(db, session_id, 0, limit=500))
    created = [(row.data["head_id"], row.run_id) for row in log if row.kind == "head.created"]
    assert created == [(made.head_id, None), (head.id, run_id)]


def test_a_state_keeps_the_facts_of_each_message_in_order(workflow: WorkflowDouble) -> None:
    source = workflow.session()
    workflow.say(source, "one")
    fork = workflow.fork(source)
    workflow.say(fork, "two", "subagent", agent_path="primary.subagents.helper")
    run_id = workflow.begin(fork, "three")
    head_id = workflow.finish(run_id, "four")
    entries = list(workflow.state(head_id)["messages"].values())
    assert [(entry["session_id"], entry["seq"], entry["run_id"]) for entry in entries] == [
        (source, 1, None),
        (fork, 2, None),
        (fork, 3, run_id),
        (fork, 4, run_id),
    ]
    assert [entry["role"] for entry in entries] == ["operator", "subagent", "operator", "primary"]
    assert entries[1]["agent_path"] == "primary.subagents.helper"
    assert entries[3]["content_hash"] == sha256(b"four")


def test_a_forks_first_head_holds_what_the_fork_itself_superseded(workflow: WorkflowDouble) -> None:
    source = workflow.session()
    early, other = (workflow.say(source, text).id for text in ("early", "other"))
    workflow.compact(source, [early])
    workflow.run(source)
    fork = workflow.fork(source)
    workflow.say(workflow.session(), "elsewhere")
    # The fork counts its changes from one again, below those that the source's head has seen.
    record = workflow.compact(fork, [other])
    head_id = workflow.run(fork)
    assert comparable(workflow.state(head_id)) == workflow.state_in_tables(fork)
    shown = workflow.state(head_id)["messages"][other]["superseded_by"]
    assert shown == [f"compaction:{record.id}"]


def test_a_head_of_a_forks_fork_lists_what_is_new_and_counts_everything(
    workflow: WorkflowDouble,
) -> None:
    session_id = workflow.session()
    workflow.run(session_id, "level 0")
    for level in (1, 2):
        session_id = workflow.fork(session_id)
        head_id = workflow.run(session_id, f"level {level}")
    derivation = heads.root(workflow.opened.blobs, head_id)["derivation"]
    assert derivation["source_session"] == workflow.row(session_id).forked_from
    for count in (6, 8):
        messages = heads.root(workflow.opened.blobs, head_id)["collections"]["messages"]
        assert messages["count"] == count
        assert len(messages["delta"]["append"]) == 2
        head_id = workflow.run(session_id, "once more")


def test_a_head_lists_rows_by_their_ids(workflow: WorkflowDouble) -> None:
    session_id = workflow.session()
    for at, call_id in ((1, "b"), (2, "a")):
        call = Call(id=call_id, session_id=session_id, created_at=at, completed_at=at)
        workflow.store.write(lambda db, row=call: insert_once(db, Call, row.model_dump()))  # type: ignore[misc]
    root = heads.root(workflow.opened.blobs, workflow.run(session_id))
    assert [one["id"] for one in root["collections"]["calls"]["delta"]["append"]] == ["a", "b"]
