"""What the store keeps as facts in rows, and what it keeps as payloads in blobs."""

from __future__ import annotations

import pytest
from sqlalchemy import func, inspect, select

from holdfast.domain.canonical import sha256
from holdfast.domain.ids import new_id
from holdfast.storage.database.engine import Db
from holdfast.storage.database.opening import OpenStore
from holdfast.storage.database.rows import change, table
from holdfast.storage.database.tables import SessionRow, ToolCallRow
from holdfast.storage.database.tables_history import Blob
from holdfast.storage.sessions import messages, tool_calls
from tests.support.stored_rows import blob_row, derivation_of, frames_of
from tests.support.workflow_double import PROMPTS, WorkflowDouble


@pytest.fixture
def workflow(sqlite_store: OpenStore) -> WorkflowDouble:
    return WorkflowDouble(sqlite_store)


def blob_count(workflow: WorkflowDouble) -> int:
    count = select(func.count()).select_from(table(Blob))
    return workflow.store.read(lambda db: int(db.connection().execute(count).scalar_one()))


@pytest.mark.req("F-006")
def test_a_session_is_a_row_of_facts(workflow: WorkflowDouble) -> None:
    session = workflow.session(source="discord", title="Work")
    fresh = workflow.row(session)
    assert (fresh.id, fresh.title, fresh.state, fresh.source) == (
        session,
        "Work",
        "idle",
        "discord",
    )
    assert fresh.created_at == fresh.updated_at
    assert fresh.current_head is None
    assert fresh.cache_id == session
    head = workflow.run(session)
    assert workflow.row(session).current_head == head
    assert workflow.row(workflow.fork(session)).cache_id == session, "it sends the same words"


@pytest.mark.req("F-016")
def test_the_source_is_a_tag_and_the_edge_says_what_a_session_is(workflow: WorkflowDouble) -> None:
    entry = workflow.session(source="discord")
    workflow.run(entry, "one")
    child, stranger = workflow.fork(entry), workflow.session(source="discord")
    assert workflow.row(child).source == workflow.row(stranger).source == "discord"
    workflow.store.write(lambda db: change(db, SessionRow, child, source="cli"))
    edges = [
        workflow.store.read(lambda db, one=one: derivation_of(db, one))  # type: ignore[misc]
        for one in (entry, child, stranger)
    ]
    assert [edge and edge.source_session for edge in edges] == [None, entry, None]
    assert workflow.texts(child) == ["one", "done"]
    assert workflow.texts(stranger) == []


@pytest.mark.req("F-011")
def test_a_message_is_a_row_and_a_head_names_it_by_the_hash_of_its_text(
    workflow: WorkflowDouble,
) -> None:
    session = workflow.session()
    run = workflow.begin(session, "question")
    head = workflow.finish(run, "answer")
    page = workflow.store.read(lambda db: messages.page(db, session, limit=10))
    facts = [(one.session_id, one.run_id, one.role, one.content) for one, _ in page]
    assert facts == [
        (session, run, "operator", "question"),
        (session, run, "primary", "answer"),
    ]
    stated = workflow.state(head)["messages"]
    for message, _ in page:
        assert message.created_at == stated[message.id]["created_at"] > 0
        assert stated[message.id]["char_count"] == len(message.content)
        assert stated[message.id]["content_hash"] == sha256(message.content.encode())
        assert "content" not in stated[message.id]


@pytest.mark.req("F-012")
@pytest.mark.parametrize("failed", [False, True])
def test_a_tool_call_is_tied_to_the_message_that_asked_and_the_one_that_answers(
    workflow: WorkflowDouble, failed: bool
) -> None:
    session = workflow.session()
    run = workflow.begin(session)
    row = ToolCallRow(
        id=new_id(),
        run_id=run,
        session_id=session,
        caller="primary",
        provider_call_id="c1",
        tool_name="shell",
        input={"command": "ls"},
    )

    def use(db: Db) -> str:
        asked = messages.append(db, session, role="primary", content="", run_id=run)
        row.message_id = asked.id
        tool_calls.add(db, [row])
        asked_for = tool_calls.start(db, row.id)
        result = tool_calls.close(
            db, asked_for, text="a b", output={"result": "a b"}, failed=failed
        )
        assert result is not None
        return result.id

    result_id = workflow.store.write(use)
    found = workflow.store.read(lambda db: tool_calls.find(db, row.id))
    result = workflow.store.read(lambda db: messages.find(db, result_id))
    assert found is not None
    assert result is not None
    assert (found.session_id, found.run_id, found.message_id) == (session, run, row.message_id)
    assert found.state == ("failed" if failed else "done")
    assert (found.input, found.output) == ({"command": "ls"}, {"result": "a b"})
    assert (result.tool_call_id, result.content) == ("c1", "a b")
    assert result.meta == {"tool_call": row.id, "failed": failed}
    sent = workflow.store.read(lambda db: frames_of(db, session))
    asked, answered = (item.payload for item in sent if item.type in {"tool_call", "tool_result"})
    assert asked["created_at"] == answered["created_at"] == found.created_at > 0
    assert (asked["completed_at"], answered["completed_at"]) == (None, found.completed_at)


@pytest.mark.req("F-020")
def test_payloads_are_blobs_however_small_and_words_are_rows_however_long(
    workflow: WorkflowDouble,
) -> None:
    session = workflow.session()
    before = blob_count(workflow)
    words = "a long story " * 50_000
    said = workflow.say(session, words)
    assert blob_count(workflow) == before
    stored = workflow.store.read(lambda db: messages.find(db, said.id))
    assert stored is not None
    assert stored.content == words

    run = workflow.begin(session, "x")
    made = workflow.pause(session)
    prompt = made.prompts["primary"]
    assert prompt == f"sha256:{sha256(PROMPTS['primary'].encode())}"
    assert workflow.opened.blobs.read(prompt).decode() == PROMPTS["primary"]
    workflow.resume(session)
    for head_id in (made.head_id, workflow.finish(run, "y")):
        reference = workflow.head(head_id or "").state_ref
        row = workflow.store.read(lambda db, one=reference: blob_row(db, one))  # type: ignore[misc]
        assert row is not None
        assert row.size < 4096


@pytest.mark.req("K-081")
def test_compactions_are_found_by_session_run_and_agent(either_store: OpenStore) -> None:
    indexes = inspect(either_store.reader).get_indexes("compactions")
    known = {tuple(index["column_names"]) for index in indexes}
    assert {("session_id",), ("run_id",), ("agent_path",)} <= known
