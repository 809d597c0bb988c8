"""What the store keeps as facts in rows, and what it keeps as payloads in blobs."""

from __future__ import annotations

import pytest
from sqlalchemy import func, inspect, select

from domain.canonical import sha256
from domain.ids import new_id
from storage import blobs, forks, frames, messages, tool_calls
from storage.engine import Db
from storage.opening import OpenStore
from storage.rows import change, table
from storage.tables import SessionRow, ToolCallRow
from storage.tables_history import Blob
from tests.support.desk import PROMPTS, Desk


@pytest.fixture
def desk(sqlite_store: OpenStore) -> Desk:
    return Desk(sqlite_store)


def blob_count(desk: Desk) -> int:
    count = select(func.count()).select_from(table(Blob))
    return desk.store.read(lambda db: int(db.connection().execute(count).scalar_one()))


@pytest.mark.req("F-006")
def test_a_session_is_a_row_of_facts(desk: Desk) -> None:
    session = desk.session(source="discord", title="Work")
    fresh = desk.row(session)
    assert (fresh.id, fresh.title, fresh.state, fresh.source) == (
        session,
        "Work",
        "idle",
        "discord",
    )
    assert fresh.created_at == fresh.updated_at
    assert fresh.current_head is None
    head = desk.run(session)
    assert desk.row(session).current_head == head


@pytest.mark.req("F-016")
def test_the_source_is_a_tag_and_the_edge_says_what_a_session_is(desk: Desk) -> None:
    entry = desk.session(source="discord")
    desk.run(entry, "one")
    child, stranger = desk.fork(entry), desk.session(source="discord")
    assert desk.row(child).source == desk.row(stranger).source == "discord"
    desk.store.write(lambda db: change(db, SessionRow, child, source="cli"))
    edges = [
        desk.store.read(lambda db, one=one: forks.derivation(db, one))  # type: ignore[misc]
        for one in (entry, child, stranger)
    ]
    assert [edge and edge.source_session for edge in edges] == [None, entry, None]
    assert desk.texts(child) == ["one", "done"]
    assert desk.texts(stranger) == []


@pytest.mark.req("F-011")
def test_a_message_is_a_row_and_a_head_names_it_by_the_hash_of_its_text(desk: Desk) -> None:
    session = desk.session()
    run = desk.begin(session, "question")
    head = desk.finish(run, "answer")
    page = desk.store.read(lambda db: messages.page(db, session, limit=10))
    facts = [(one.session_id, one.run_id, one.role, one.content) for one, _ in page]
    assert facts == [
        (session, run, "operator", "question"),
        (session, run, "primary", "answer"),
    ]
    stated = desk.state(head)["messages"]
    for message, _ in page:
        assert message.created_at > 0
        assert stated[message.id]["content_hash"] == sha256(message.content.encode())
        assert "content" not in stated[message.id]


@pytest.mark.req("F-012")
@pytest.mark.parametrize("failed", [False, True])
def test_a_tool_call_is_tied_to_the_message_that_asked_and_the_one_that_answers(
    desk: Desk, failed: bool
) -> None:
    session = desk.session()
    run = desk.begin(session)
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

    result_id = desk.store.write(use)
    found = desk.store.read(lambda db: tool_calls.find(db, row.id))
    result = desk.store.read(lambda db: messages.find(db, result_id))
    assert found is not None
    assert result is not None
    assert (found.session_id, found.run_id, found.message_id) == (session, run, row.message_id)
    assert found.state == ("failed" if failed else "done")
    assert (found.input, found.output) == ({"command": "ls"}, {"result": "a b"})
    assert (result.tool_call_id, result.content) == ("c1", "a b")
    assert result.meta == {"tool_call": row.id, "failed": failed}
    sent = desk.store.read(lambda db: frames.after(db, session, 0, limit=100))
    asked, answered = (item.payload for item in sent if item.type in {"tool_call", "tool_result"})
    assert asked["created_at"] == answered["created_at"] == found.created_at > 0
    assert (asked["completed_at"], answered["completed_at"]) == (None, found.completed_at)


@pytest.mark.req("F-020")
def test_payloads_are_blobs_however_small_and_words_are_rows_however_long(desk: Desk) -> None:
    session = desk.session()
    before = blob_count(desk)
    words = "a long story " * 50_000
    said = desk.say(session, words)
    assert blob_count(desk) == before
    stored = desk.store.read(lambda db: messages.find(db, said.id))
    assert stored is not None
    assert stored.content == words

    run = desk.begin(session, "x")
    made = desk.pause(session)
    prompt = made.prompts["primary"]
    assert prompt == f"sha256:{sha256(PROMPTS['primary'].encode())}"
    assert desk.opened.blobs.read(prompt).decode() == PROMPTS["primary"]
    desk.resume(session)
    for head_id in (made.head_id, desk.finish(run, "y")):
        reference = desk.head(head_id or "").state_ref
        row = desk.store.read(lambda db, one=reference: blobs.row(db, one))  # type: ignore[misc]
        assert row is not None
        assert row.size < 4096


@pytest.mark.req("K-081")
def test_compactions_are_found_by_session_run_and_agent(either_store: OpenStore) -> None:
    indexes = inspect(either_store.reader).get_indexes("compactions")
    known = {tuple(index["column_names"]) for index in indexes}
    assert {("session_id",), ("run_id",), ("agent_path",)} <= known
