"""A cleared fork reads nothing of its source, and nobody else loses a message."""

from __future__ import annotations

import pytest

from holdfast.storage.database.opening import OpenStore
from holdfast.storage.sessions import sessions
from holdfast.storage.transfer import archive
from holdfast.storage.upkeep import consistency, removal
from tests.support.workflow_double import WorkflowDouble, comparable


@pytest.fixture
def workflow(either_store: OpenStore) -> WorkflowDouble:
    return WorkflowDouble(either_store)


def clear(workflow: WorkflowDouble, session_id: str) -> int:
    return removal.clear_messages(workflow.opened, session_id, workflow.operator_id)


@pytest.mark.req("H-041")
def test_clearing_a_fork_hides_what_it_inherited_from_it_alone(workflow: WorkflowDouble) -> None:
    first = workflow.session()
    workflow.run(first, "one")
    source = workflow.fork(first)
    workflow.run(source, "two")
    fork, sibling = workflow.fork(source), workflow.fork(source)
    workflow.run(fork, "three")
    changes = workflow.row(fork).change_seq
    assert clear(workflow, fork) == 6
    assert workflow.seen(fork) == []
    assert workflow.row(fork).change_seq > changes  # so that the memory of the project reads it
    assert workflow.texts(source) == workflow.texts(sibling) == ["one", "done", "two", "done"]
    head_id = workflow.run(fork, "fresh")
    assert workflow.texts(fork) == ["fresh", "done"]
    assert comparable(workflow.state(head_id)) == workflow.state_in_tables(fork)
    assert workflow.texts(workflow.fork(fork)) == ["fresh", "done"]
    assert consistency.check(workflow.opened).issues == []


@pytest.mark.req("H-041", "H-042")
def test_a_cleared_fork_and_its_source_can_be_purged_in_either_order(
    workflow: WorkflowDouble,
) -> None:
    for source_first in (True, False):
        source = workflow.session()
        workflow.run(source, "one")
        fork = workflow.fork(source)
        workflow.run(fork, "two")
        clear(workflow, fork)
        head_id = workflow.run(fork, "fresh")
        removal.purge(workflow.opened, source if source_first else fork)
        if source_first:
            assert workflow.texts(fork) == ["fresh", "done"]
            assert comparable(workflow.state(head_id)) == workflow.state_in_tables(fork)
        assert consistency.check(workflow.opened).issues == []
        removal.purge(workflow.opened, fork if source_first else source)
        for gone in (source, fork):
            found = workflow.store.read(lambda db, key=gone: sessions.find(db, key))  # type: ignore[misc]
            assert found is None


@pytest.mark.req("H-041", "H-042")
def test_clearing_the_last_fork_of_a_purged_source_removes_what_was_kept_for_it(
    workflow: WorkflowDouble,
) -> None:
    source = workflow.session()
    workflow.run(source, "one")
    fork = workflow.fork(source)
    removal.purge(workflow.opened, source)
    assert clear(workflow, fork) == 2
    left = workflow.store.read(lambda db: archive.rows_of(db, source))
    assert left["messages"] == left["heads"] == []
    assert consistency.check(workflow.opened).issues == []


@pytest.mark.req("H-042")
def test_a_purge_leaves_no_supersession_of_a_message_that_went(workflow: WorkflowDouble) -> None:
    source = workflow.session()
    workflow.run(source, "one")
    fork = workflow.fork(source)
    workflow.run(source, "two")
    workflow.compact(source, [key for key, _ in workflow.seen(source)])
    removal.purge(workflow.opened, source)
    assert workflow.texts(fork) == ["one", "done"]
    assert consistency.check(workflow.opened).issues == []
