"""The timeline: each span under the one that it belongs to, in the order of their begin."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.storage.database.opening import OpenStore
from holdfast.storage.database.rows import change
from holdfast.storage.database.tables import SubagentInvocation, ToolCallRow
from holdfast.storage.moves import timeline
from holdfast.storage.sessions import runs
from tests.support.workflow_double import WorkflowDouble


@pytest.fixture
def workflow(either_store: OpenStore) -> WorkflowDouble:
    return WorkflowDouble(either_store)


def spans(workflow: WorkflowDouble, session_id: str) -> dict[str, Any]:
    found = workflow.store.read(
        lambda db: timeline.spans(db, session_id, runs.of_session(db, session_id, limit=10))
    )
    assert [span["start"] for span in found] == sorted(span["start"] for span in found)
    return {span["id"]: span for span in found}


def test_calls_of_a_subagent_stand_under_it_and_pauses_have_their_own_span(
    workflow: WorkflowDouble,
) -> None:
    session_id = workflow.session()
    assert spans(workflow, session_id) == {}
    run_id = workflow.begin(session_id, "please\n  do " + "x" * 200)
    mine = workflow.call(session_id, run_id, "shell", command="make test")
    helper = workflow.subagent(session_id, run_id)
    its = workflow.call(session_id, run_id, "read_file", path="notes.txt")
    workflow.store.write(
        lambda db: change(db, ToolCallRow, its, caller="primary.subagents.helper", created_at=2)
    )
    workflow.store.write(lambda db: change(db, SubagentInvocation, helper, spawned_at=1))
    pause = workflow.pause(session_id, "look here")
    found = spans(workflow, session_id)
    assert {key: (span["kind"], span["parent"]) for key, span in found.items()} == {
        run_id: ("run", None),
        mine: ("tool", run_id),
        helper: ("subagent", run_id),
        its: ("tool", helper),
        pause.id: ("pause", run_id),
    }
    assert found[mine]["label"] == "shell make test"
    assert len(found[run_id]["label"]) == timeline.LABEL_CHARS_MAX
    assert (found[pause.id]["label"], found[pause.id]["end"]) == ("look here", None)
    workflow.resume(session_id)
    workflow.finish(run_id)
    found = spans(workflow, session_id)
    assert found[pause.id]["state"] == "resumed"
    assert found[run_id]["end"] is not None
    assert found[run_id]["tokens"] == {"input": 0, "output": 0}
