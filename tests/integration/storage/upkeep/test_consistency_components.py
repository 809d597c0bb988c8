"""The consistency check reads the delta of every collection in a head's state."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.domain.canonical import canonical
from holdfast.storage.database import blobs
from holdfast.storage.database.engine import Db
from holdfast.storage.database.opening import OpenStore
from holdfast.storage.database.rows import change, insert_once
from holdfast.storage.database.tables import SessionRow
from holdfast.storage.database.tables_history import Head
from holdfast.storage.moves import heads
from holdfast.storage.upkeep import consistency
from tests.support.blob_files import blob_file
from tests.support.workflow_double import WorkflowDouble

pytestmark = pytest.mark.req("F-030", "F-039", "F-040")
# Enough messages for a delta in a blob of its own.
MANY = 200


@pytest.fixture
def workflow(sqlite_store: OpenStore) -> WorkflowDouble:
    return WorkflowDouble(sqlite_store)


def issues(workflow: WorkflowDouble) -> set[tuple[str, str]]:
    return {(issue.type, issue.id) for issue in consistency.check(workflow.opened).issues}


def large_delta(workflow: WorkflowDouble) -> tuple[str, str]:
    """A head and the blob of its messages."""
    session_id = workflow.session()
    workflow.fill(session_id, MANY)
    head_id = workflow.run(session_id)
    root = heads.root(workflow.opened.blobs, head_id)
    return head_id, root["collections"]["messages"]["delta_ref"]


def with_root(workflow: WorkflowDouble, head_id: str, root: dict[str, Any]) -> str:
    """A head like this one whose state is another root, stored and named as it should be."""

    def put(db: Db) -> str:
        stored = workflow.opened.blobs.put_json(root)
        facts = workflow.head(head_id).model_dump()
        facts |= {"id": stored.sha256, "state_ref": blobs.commit(db, stored), "number": 99}
        insert_once(db, Head, facts)
        change(db, SessionRow, facts["session_id"], current_head=stored.sha256)
        return str(stored.sha256)

    return workflow.store.write(put)


def test_a_component_that_is_gone_is_found(workflow: WorkflowDouble) -> None:
    _, reference = large_delta(workflow)
    blob_file(workflow.opened, reference).unlink()
    assert issues(workflow) == {
        ("blob/missing", reference),
        ("head-state-component-missing", reference),
    }


@pytest.mark.parametrize("forged", [b"junk", canonical({"append": []})])
def test_a_component_with_other_bytes_is_found(workflow: WorkflowDouble, forged: bytes) -> None:
    _, reference = large_delta(workflow)
    blob_file(workflow.opened, reference).write_bytes(forged)
    assert issues(workflow) == {
        ("blob/hash-mismatch", reference),
        ("head-state-component-unreadable", reference),
    }


@pytest.mark.parametrize("name", heads.COLLECTIONS)
def test_a_component_that_another_root_wrote_is_found(workflow: WorkflowDouble, name: str) -> None:
    head_id, reference = large_delta(workflow)
    root = heads.root(workflow.opened.blobs, head_id)
    of_messages = root["collections"]["messages"]
    root["collections"][name] = {**of_messages, "basis": head_id}
    forged = with_root(workflow, head_id, root)
    assert issues(workflow) == {("head-state-component-mismatch", f"{forged}/{name}")}
    assert reference == of_messages["delta_ref"]


@pytest.mark.parametrize("key", ["append", "replace", "remove", "collection"])
def test_a_component_inside_the_root_is_looked_at_as_well(
    workflow: WorkflowDouble, key: str
) -> None:
    head_id = workflow.run(workflow.session())
    root = heads.root(workflow.opened.blobs, head_id)
    del root["collections"]["runs"]["delta"][key]
    forged = with_root(workflow, head_id, root)
    assert issues(workflow) == {("head-state-component-mismatch", f"{forged}/runs")}


def test_a_component_on_a_basis_that_is_gone_is_found(workflow: WorkflowDouble) -> None:
    head_id = workflow.run(workflow.session())
    root = heads.root(workflow.opened.blobs, head_id)
    part = root["collections"]["calls"]
    assert part["delta"] is None
    part["basis"] = "0" * 64
    forged = with_root(workflow, head_id, root)
    assert issues(workflow) == {("head-state-component-basis-missing", f"{forged}/calls")}


def test_a_root_without_a_collection_is_unreadable(workflow: WorkflowDouble) -> None:
    head_id = workflow.run(workflow.session())
    root = heads.root(workflow.opened.blobs, head_id)
    del root["collections"]["invocations"]
    forged = with_root(workflow, head_id, root)
    assert issues(workflow) == {
        ("head-state-unreadable", forged),
        ("current-head-state-unreadable", forged),
    }
