"""What a head's row says of it, and the heads around a subagent's work."""

from __future__ import annotations

import pytest

from holdfast.domain.ids import new_id
from holdfast.storage.database.opening import OpenStore
from holdfast.storage.database.rows import find_row
from holdfast.storage.database.tables import SubagentInvocation
from holdfast.storage.moves import heads
from holdfast.storage.sessions import invocations, run_views, runs
from tests.support.workflow_double import WorkflowDouble


@pytest.fixture
def workflow(either_store: OpenStore) -> WorkflowDouble:
    return WorkflowDouble(either_store)


def begin_subagent(workflow: WorkflowDouble, session_id: str, run_id: str) -> str:
    """A subagent that starts now, as the activity stores it; its invocation's id."""
    row = SubagentInvocation(
        id=new_id(),
        run_id=run_id,
        session_id=session_id,
        subagent_name="helper",
        agent_path="primary.subagents.helper",
        tool_call_id="call",
    )
    head = workflow.row(session_id).current_head
    workflow.store.write(lambda db: invocations.begin(db, row, "do this", head=head))
    return row.id


def invocation(workflow: WorkflowDouble, invocation_id: str) -> SubagentInvocation:
    found = workflow.store.read(lambda db: find_row(db, SubagentInvocation, invocation_id))
    assert found is not None
    return found


@pytest.mark.req("F-009")
def test_a_head_of_a_checkpoint_names_the_snapshot_by_id_and_hash(
    workflow: WorkflowDouble,
) -> None:
    session_id = workflow.session()
    run_id = workflow.begin(session_id)
    point = workflow.pause(session_id)
    head = workflow.head(str(point.head_id))
    assert (head.checkpoint_id, head.run_id) == (point.id, None)
    assert head.snapshot_ref == heads.snapshot_ref(point)
    assert (head.fingerprint, head.state_ref) == (head.id, f"sha256:{head.id}")
    root = heads.root(workflow.opened.blobs, head.id)
    assert (root["snapshot_id"], root["snapshot_ref"]) == (point.id, head.snapshot_ref)
    workflow.resume(session_id)
    ended = workflow.head(workflow.finish(run_id))
    assert (ended.checkpoint_id, ended.snapshot_ref) == (None, None)
    assert (ended.run_id, ended.basis, ended.status) == (run_id, head.id, "complete")


@pytest.mark.req("F-009")
def test_the_hash_of_a_snapshot_follows_its_content(workflow: WorkflowDouble) -> None:
    session_id = workflow.session()
    workflow.begin(session_id)
    point = workflow.pause(session_id)
    before = heads.snapshot_ref(point)
    for name, value in (("snapshot", {"other": 1}), ("prompts", {}), ("message_seq", 99)):
        changed = point.model_copy(update={name: value})
        assert heads.snapshot_ref(changed) != before, name


@pytest.mark.req("F-009")
def test_a_head_has_the_cache_id_of_its_session(workflow: WorkflowDouble) -> None:
    source = workflow.session()
    first = workflow.head(workflow.run(source))
    fork = workflow.head(workflow.run(workflow.fork(source)))
    assert (first.cache_id, fork.cache_id) == (source, source)
    assert heads.head_json(fork, current=None)["cache_id"] == source


@pytest.mark.req("F-013", "F-036")
def test_an_invocation_names_the_heads_before_and_after_it(workflow: WorkflowDouble) -> None:
    session_id = workflow.session()
    before = workflow.run(session_id)
    run_id = workflow.begin(session_id)
    helper = begin_subagent(workflow, session_id, run_id)
    point = workflow.pause(session_id)
    started = invocation(workflow, helper)
    assert started.type == "subagent"
    assert (started.session_id, started.callee_session) == (session_id, session_id)
    assert (started.caller_head_before, started.callee_head_before) == (before, None)
    assert started.caller_head_after is None, f"it still works at {point.head_id}"
    workflow.resume(session_id)
    workflow.store.write(lambda db: invocations.end(db, started, "done"))
    after = workflow.finish(run_id)
    workflow.run(session_id)
    ended = invocation(workflow, helper)
    assert (ended.caller_head_before, ended.caller_head_after) == (before, after)
    assert (ended.callee_head_before, ended.callee_head_after) == (None, after)
    assert (ended.state, ended.tool_call_id) == ("done", "call")


@pytest.mark.req("F-013", "F-036")
def test_a_run_shows_the_heads_around_its_subagents(workflow: WorkflowDouble) -> None:
    session_id = workflow.session()
    before = workflow.run(session_id)
    run_id = workflow.begin(session_id)
    helper = begin_subagent(workflow, session_id, run_id)
    row = invocation(workflow, helper)
    workflow.store.write(lambda db: invocations.end(db, row, "done"))
    after = workflow.finish(run_id)
    shown = workflow.store.read(lambda db: run_views.view(db, runs.get(db, run_id)))
    [one] = shown["subagent_invocations"]
    assert (one["type"], one["callee_session"]) == ("subagent", session_id)
    assert (one["caller_head_before"], one["caller_head_after"]) == (before, after)
    assert (one["callee_head_before"], one["callee_head_after"]) == (None, after)
