"""Calls as rows: a second attempt, what they used, and what was streamed but never stored."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.domain.errors import ActionNotAllowed
from holdfast.domain.ids import new_id
from holdfast.storage.database.engine import Db
from holdfast.storage.database.opening import OpenStore
from holdfast.storage.database.rows import change
from holdfast.storage.database.tables import Call, InboxMessage, SubagentInvocation
from holdfast.storage.log import events, frames
from holdfast.storage.sessions import admission, calls, inbox, invocations, messages, runs
from holdfast.storage.sessions.calls import Bill
from holdfast.storage.sessions.message_views import message_json
from tests.support.workflow_double import WorkflowDouble


@pytest.fixture
def workflow(sqlite_store: OpenStore) -> WorkflowDouble:
    return WorkflowDouble(sqlite_store)


def finish(workflow: WorkflowDouble, call: Call, bill: Bill) -> None:
    workflow.store.write(lambda db: calls.begin(db, call))
    workflow.store.write(lambda db: calls.finish(db, call, bill))


def test_a_second_attempt_takes_the_row_over(workflow: WorkflowDouble) -> None:
    session_id = workflow.session()
    first = Call(id=new_id(), session_id=session_id, message_id="one", request_ref="a")
    again = Call(id=first.id, session_id=session_id, message_id="two", request_ref="b", attempt=2)
    workflow.store.write(lambda db: calls.begin(db, first))
    workflow.store.write(lambda db: calls.fail(db, first.id, {"code": "x"}))
    failed = workflow.store.read(lambda db: calls.get(db, first.id))
    assert (failed.status, failed.error) == ("failed", {"code": "x"})
    assert failed.completed_at is not None
    workflow.store.write(lambda db: calls.begin(db, again))
    row = workflow.store.read(lambda db: calls.get(db, first.id))
    assert (row.status, row.attempt, row.error) == ("started", 2, None)
    assert (row.message_id, row.request_ref) == ("two", "b")
    assert row.created_at == failed.created_at


def test_what_calls_used_is_added_up(workflow: WorkflowDouble) -> None:
    session_id = workflow.session()
    run_id = workflow.begin(session_id)
    root = Call(id=new_id(), session_id=session_id, run_id=run_id)
    helper = Call(id=new_id(), session_id=session_id, run_id=run_id, type="subagent")
    finish(workflow, root, Bill(input_tokens=5, output_tokens=3, cost_usd=0.5))
    finish(workflow, helper, Bill(input_tokens=2, output_tokens=1, cost_usd=0.25))
    run = workflow.store.read(lambda db: runs.get(db, run_id))
    assert (run.steps, run.tokens_in, run.tokens_out, run.cost_usd) == (1, 7, 4, 0.75)
    session = workflow.row(session_id)
    assert (session.input_tokens, session.output_tokens, session.api_calls) == (7, 4, 2)
    assert (session.estimated_cost_usd, session.actual_cost_usd) == (0.75, None)
    assert workflow.store.read(lambda db: calls.cost_of_run(db, run_id)) == 0.75
    assert workflow.store.read(lambda db: calls.cost_of_run(db, "other")) == 0.0
    log = workflow.store.read(lambda db: events.after(db, session_id, 0, limit=500))
    put = [row for row in log if row.data.get("call_id")]
    assert [(row.data["call_id"], row.data["status"], row.row_id, row.run_id) for row in put] == [
        (call.id, "done", call.id, run_id) for call in (root, helper)
    ]


def test_streamed_words_are_found_by_session_run_and_message(workflow: WorkflowDouble) -> None:
    session_id, other_id = workflow.session(), workflow.session()
    stored = workflow.say(session_id, "stored", "primary").id

    def stream(session: str, message_id: str, text: str, run_id: str = "run") -> None:
        delta: dict[str, Any] = {"run_id": run_id, "message_id": message_id, "text": text}
        delta["agent_path"] = "primary"
        workflow.store.write(lambda db: frames.append(db, session, ("delta", delta)))

    stream(session_id, "coming", "one ")
    stream(session_id, stored, "stored")
    stream(other_id, "coming", "elsewhere ")
    stream(session_id, "another", "not of this run", "run-2")
    stream(session_id, "coming", "two")
    text = workflow.store.read(lambda db: calls.streamed_text(db, session_id, "coming"))
    assert text == "one two"
    found = workflow.store.read(lambda db: calls.unfinished(db, "run", session_id))
    assert found == {"coming": ("primary", "one two")}


def test_only_what_was_staged_long_ago_is_swept(workflow: WorkflowDouble) -> None:
    session_id = workflow.session()
    for key in ("old", "new"):
        workflow.store.write(
            lambda db, name=key: inbox.stage(  # type: ignore[misc]
                db, message_id=name, session_id=session_id, content="x", model_override=None
            )
        )
    workflow.store.write(lambda db: change(db, InboxMessage, "old", created_at=1))
    assert workflow.store.write(lambda db: inbox.sweep(db)) == 1
    assert workflow.store.read(lambda db: inbox.find(db, "old")) is None
    assert workflow.store.read(lambda db: inbox.find(db, "new")) is not None


def test_a_message_is_not_admitted_while_a_run_works_and_waits_where_it_is(
    workflow: WorkflowDouble,
) -> None:
    session_id = workflow.session()
    workflow.begin(session_id)
    message_id, run_id = new_id(), new_id()

    def admit(db: Db) -> None:
        inbox.stage(
            db, message_id=message_id, session_id=session_id, content="x", model_override=None
        )
        admission.admit(db, session_id, message_id=message_id, run_id=run_id, user_id="alice")

    with pytest.raises(ActionNotAllowed):
        workflow.store.write(admit)
    assert workflow.store.read(lambda db: runs.find(db, run_id)) is None


def test_a_subagent_reads_its_prompt_as_the_words_of_who_asked(workflow: WorkflowDouble) -> None:
    session_id = workflow.session()
    run_id = workflow.begin(session_id)
    path = "primary.subagents.helper"
    row = SubagentInvocation(
        id=new_id(),
        run_id=run_id,
        session_id=session_id,
        subagent_name="helper",
        agent_path=path,
        tool_call_id="call",
    )
    workflow.store.write(lambda db: invocations.begin(db, row, "do this"))
    (message,) = workflow.store.read(
        lambda db: messages.history(db, session_id, agent_path=path, invocation_id=row.id)
    )
    assert (message.role, message.content) == ("operator", "do this")
    assert message.meta == {"kind": "subagent_prompt"}
    shown = message_json(message, [])
    assert (shown["session_id"], shown["agent_path"]) == (session_id, path)
