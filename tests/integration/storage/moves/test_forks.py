"""Forks: by reference, at constant cost, untouched by what their source does later."""

from __future__ import annotations

from typing import Any

import pytest
from sqlalchemy import func, select

from holdfast.domain.errors import BadRequest, NotFound
from holdfast.storage.database.engine import Db
from holdfast.storage.database.opening import OpenStore
from holdfast.storage.database.rows import table
from holdfast.storage.database.tables import Message
from holdfast.storage.log import events
from holdfast.storage.moves import comparisons, forks, prompt_edits
from holdfast.storage.upkeep import consistency, removal
from tests.support.stored_rows import derivation_of
from tests.support.workflow_double import WorkflowDouble, comparable


@pytest.fixture
def workflow(sqlite_store: OpenStore) -> WorkflowDouble:
    return WorkflowDouble(sqlite_store)


@pytest.fixture
def either_workflow(either_store: OpenStore) -> WorkflowDouble:
    return WorkflowDouble(either_store)


@pytest.mark.req("K-112", "K-148", "F-010")
def test_a_fork_sees_its_source_as_it_was(workflow: WorkflowDouble) -> None:
    source = workflow.session()
    workflow.run(source, "one")
    fork = workflow.fork(source)
    workflow.run(source, "two")
    workflow.run(fork, "other")
    assert workflow.texts(source) == ["one", "done", "two", "done"]
    assert workflow.texts(fork) == ["one", "done", "other", "done"]
    row = workflow.row(fork)
    assert (row.forked_from, row.parent_session_id) == (source, source)
    edge = workflow.store.read(lambda db: derivation_of(db, fork))
    assert edge is not None
    assert edge.source_head is not None


@pytest.mark.req("K-112")
def test_a_rollback_or_compaction_of_the_source_does_not_show(workflow: WorkflowDouble) -> None:
    source = workflow.session()
    run_id = workflow.begin(source, "one")
    made = workflow.pause(source)
    workflow.resume(source)
    workflow.finish(run_id, "answer")
    fork = workflow.fork(source)
    before = workflow.texts(fork)
    workflow.compact(source, [key for key, _ in workflow.seen(source)])
    assert workflow.texts(fork) == before == ["one", "answer"]
    workflow.roll_back(source, made.id)
    assert workflow.texts(fork) == before
    assert workflow.texts(source) == ["one"]


@pytest.mark.req("K-112")
def test_a_fork_of_a_fork_of_a_fork_sees_every_level(either_workflow: WorkflowDouble) -> None:
    workflow = either_workflow
    session_id = workflow.session()
    workflow.run(session_id, "level 0")
    chain = [session_id]
    for level in range(1, 4):
        chain.append(workflow.fork(chain[-1]))
        workflow.run(chain[-1], f"level {level}")
    expected = [text for level in range(4) for text in (f"level {level}", "done")]
    assert workflow.texts(chain[-1]) == expected
    inherited = workflow.seen(chain[-1])[0][0]
    workflow.compact(chain[2], [inherited])
    assert workflow.texts(chain[-1]) == expected
    workflow.compact(chain[-1], [inherited])
    assert workflow.texts(chain[-1])[0] != "level 0"
    assert workflow.texts(chain[0])[0] == "level 0"


@pytest.mark.req("K-112", "F-004", "F-036")
def test_a_fork_starts_at_a_checkpoint_or_at_a_head(workflow: WorkflowDouble) -> None:
    source = workflow.session()
    head_id = workflow.run(source, "one")
    run_id = workflow.begin(source, "two")
    made = workflow.pause(source)
    workflow.resume(source)
    workflow.finish(run_id, "answer")
    assert workflow.texts(workflow.fork(source, checkpoint_id=made.id)) == ["one", "done", "two"]
    fork = workflow.fork(source, head_id=head_id)
    assert workflow.texts(fork) == ["one", "done"]
    assert workflow.row(fork).message_count == 2
    with pytest.raises(BadRequest):
        workflow.fork(source, head_id=head_id, checkpoint_id=made.id)
    other = workflow.run(workflow.session())
    with pytest.raises(NotFound):
        workflow.fork(source, head_id=other)


@pytest.mark.req("K-143")
def test_a_missing_or_foreign_source_is_not_found(workflow: WorkflowDouble) -> None:
    foreign = workflow.session(created_by="somebody-else")
    for source in ("nothing", foreign):
        with pytest.raises(NotFound, match="Source session not found"):
            workflow.fork(source)


def test_a_fork_goes_on_as_its_source_unless_it_is_told_otherwise(workflow: WorkflowDouble) -> None:
    source = workflow.session(mode="plan", model_override="stub:one", source="cli")
    same = workflow.row(workflow.fork(source))
    assert (same.mode, same.model_override, same.source) == ("plan", "stub:one", "cli")
    other = workflow.row(workflow.fork(source, mode="auto", model_override="stub:two"))
    assert (other.mode, other.model_override, other.source) == ("auto", "stub:two", "cli")


@pytest.mark.req("F-033")
def test_a_fork_copies_no_message(workflow: WorkflowDouble) -> None:
    source = workflow.session()
    workflow.fill(source, 30)
    count = select(func.count()).select_from(table(Message))
    before = workflow.store.read(lambda db: db.connection().execute(count).scalar_one())
    fork = workflow.fork(source)
    assert workflow.store.read(lambda db: db.connection().execute(count).scalar_one()) == before
    assert len(workflow.texts(fork)) == 30
    assert workflow.store.read(lambda db: forks.kept_for_forks(db, source)) == 30
    assert workflow.store.read(lambda db: forks.kept_for_forks(db, fork)) is None


def test_a_fork_under_another_project_file_forgets_what_was_withheld_of_the_old_one(
    workflow: WorkflowDouble,
) -> None:
    withheld = ["primary.cage"]
    source = workflow.session(dsl_hash="old", file_hash="bytes", withheld=withheld)

    def kept(fork: str) -> tuple[str, str | None, object]:
        row = workflow.row(fork)
        return row.dsl_hash, row.file_hash, row.withheld

    assert kept(workflow.fork(source)) == ("old", "bytes", withheld)
    assert kept(workflow.fork(source, dsl_hash="new")) == ("new", None, None)
    both = workflow.fork(source, dsl_hash="new", file_hash="other")
    assert kept(both) == ("new", "other", None)


def test_two_sessions_are_compared_from_where_they_parted(either_workflow: WorkflowDouble) -> None:
    workflow = either_workflow
    source = workflow.session()
    shared = workflow.run(source, "shared")
    left, right = workflow.fork(source), workflow.fork(source)
    workflow.run(left, "left")
    workflow.run(right, "right")
    workflow.run(source, "source")

    def compare(a: str, b: str) -> dict[str, object]:
        return workflow.store.read(lambda db: comparisons.compare(db, a, b))

    def since(side: object) -> list[str]:
        assert isinstance(side, dict)
        return [message["content"] for message in side["messages"]]

    found = compare(left, right)
    assert isinstance(found["common"], dict)
    assert found["common"]["head_id"] == shared
    assert found["common"]["session_id"] == source
    assert (since(found["a"]), since(found["b"])) == (["left", "done"], ["right", "done"])
    found = compare(source, left)
    assert (since(found["a"]), since(found["b"])) == (["source", "done"], ["left", "done"])
    found = compare(left, left)
    assert (since(found["a"]), since(found["b"])) == ([], [])
    found = compare(left, workflow.session())
    assert found["common"] is None
    assert len(since(found["a"])) == 4


@pytest.mark.req("K-112", "H-042")
def test_forks_outlive_the_purge_of_their_sources(workflow: WorkflowDouble) -> None:
    source = workflow.session()
    workflow.run(source, "one")
    run_id = workflow.begin(source, "two")
    made = workflow.pause(source)
    workflow.resume(source)
    workflow.finish(run_id)
    middle = workflow.fork(source, checkpoint_id=made.id)
    fork = workflow.fork(middle)
    head_id = workflow.run(fork, "three")
    before = workflow.state(head_id)
    removal.purge(workflow.opened, source)
    removal.purge(workflow.opened, middle)
    assert workflow.state(head_id) == before
    assert workflow.texts(fork) == ["one", "done", "two", "three", "done"]
    text = prompt_edits.text_of(workflow.opened.blobs, workflow.row(fork), "primary")
    assert text == "You are the root."
    newer = workflow.run(fork, "four")
    assert comparable(workflow.state(newer)) == workflow.state_in_tables(fork)
    assert consistency.check(workflow.opened).issues == []


def test_the_same_fork_twice_is_one(workflow: WorkflowDouble) -> None:
    source = workflow.session()
    workflow.begin(source)
    made = workflow.pause(source)
    options = {"source_session": source, "operator": workflow.operator_id, "new_session_id": "fork"}

    def fork(db: Db) -> str:
        return forks.fork(db, workflow.opened.blobs, **options, checkpoint_id=made.id).id

    assert workflow.store.write(fork) == workflow.store.write(fork) == "fork"
    log = workflow.store.read(lambda db: events.after(db, "fork", 0, limit=50))
    (forked,) = [row.data for row in log if row.kind == "session.forked"]
    assert forked["checkpoint_id"] == made.id
    assert (forked["source_session_id"], forked["source_head_id"]) == (source, made.head_id)
    edge = workflow.store.read(lambda db: derivation_of(db, "fork"))
    assert edge is not None
    assert (edge.type, edge.source_head) == ("fork", made.head_id)


def test_a_comparison_names_the_common_head_and_cuts_at_its_limit(
    workflow: WorkflowDouble,
) -> None:
    source = workflow.session()
    shared = workflow.run(source, "shared")
    left = workflow.fork(source)
    workflow.run(left, "left")

    def compare(limit: int) -> dict[str, Any]:
        return workflow.store.read(lambda db: comparisons.compare(db, source, left, limit=limit))

    found = compare(2)
    assert found["common"]["message_seq"] == 2
    assert found["common"]["head"]["id"] == found["common"]["head_id"] == shared
    assert (found["b"]["truncated"], len(found["b"]["messages"])) == (False, 2)
    assert found["b"]["runs"] == [workflow.head(workflow.row(left).current_head or "").run_id]
    found = compare(1)
    assert (found["b"]["truncated"], len(found["b"]["messages"])) == (True, 1)


def test_a_fork_without_a_head_has_no_common_head(workflow: WorkflowDouble) -> None:
    source = workflow.session()
    workflow.begin(source, "not answered yet")
    fork = workflow.fork(source)
    common = workflow.store.read(lambda db: comparisons.compare(db, fork, source))["common"]
    assert (common["head_id"], common["head"], common["message_seq"]) == (None, None, 1)


def test_the_common_head_is_the_one_that_the_fork_began_at(workflow: WorkflowDouble) -> None:
    source = workflow.session()
    workflow.begin(source)
    first = workflow.pause(source)
    workflow.resume(source)
    second = workflow.pause(source)
    assert first.message_seq == second.message_seq
    for point in (first, second):
        fork = workflow.fork(source, checkpoint_id=point.id)
        found = workflow.store.read(lambda db, key=fork: comparisons.common_point(db, key, source))  # type: ignore[misc]
        assert found is not None
        assert found.head_id == point.head_id
