"""What the library says about real runs: causes, usage, titles, and chats that wait their turn."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.storage.chats import chat_log
from holdfast.storage.database.engine import Db
from holdfast.storage.log import causes, events
from holdfast.storage.sessions.usage import usage
from tests.support.chat_lines import open_chat, queue_lines
from tests.support.local_worker import LocalWorker, script
from tests.support.stored_rows import tool_calls_of


def traced(worker: LocalWorker, session_id: str, kind: str) -> dict[str, Any]:
    """The last event of this kind, with its chain."""

    def look(db: Db) -> dict[str, Any]:
        found = [row for row in events.after(db, session_id, 0, limit=500) if row.kind == kind]
        return causes.trace(db, found[-1])

    return worker.store.read(look)


@pytest.mark.req("F-008", "F-022", "F-024")
async def test_a_head_is_traced_back_to_what_the_operator_said(worker: LocalWorker) -> None:
    session = worker.session()
    await worker.run(session, "all done")
    await worker.state(session, "idle")
    head = traced(worker, session, "head.created")
    assert (head["row_kind"], head["row_id"]) == ("head", worker.row(session).current_head)
    assert head["row"]["id"] == head["row_id"]
    kinds = [item["type"] for item in head["chain"]]
    assert "run.created" in kinds
    said = [item for item in head["chain"] if item["type"] == "message.added"]
    assert said[-1]["row"]["role"] == "operator"
    assert said[-1]["causes"] == []
    call = traced(worker, session, "call.put")
    assert call["causes"][0]["kind"] == "run"
    answer = traced(worker, session, "message.added")
    assert answer["causes"][0]["kind"] == "call"


@pytest.mark.req("F-024", "K-105")
async def test_a_tools_result_is_traced_back_to_its_call(worker: LocalWorker) -> None:
    session = worker.session()
    run = await worker.run(session, script({"call": "list_files"}, {"say": "Seen."}))
    (call,) = worker.store.read(lambda db: tool_calls_of(db, run.id))
    (result,) = [one for one in worker.messages(session) if one.role == "tool"]
    assert call.result_message_id == result.id
    added = [one for one in worker.events(session) if one.row_id == result.id]
    shown = worker.store.read(lambda db: causes.trace(db, added[0]))
    assert [(one["kind"], one["id"]) for one in shown["causes"]] == [
        ("tool_call", call.id),
        ("message", call.message_id),
    ]


@pytest.mark.req("H-037", "H-038")
async def test_usage_counts_calls_by_model_day_and_project(worker: LocalWorker) -> None:
    session = worker.session()
    await worker.run(session, "hello there")
    report = worker.store.read(lambda db: usage(db, worker.operator_id))
    (model,) = report["by_model"]
    assert (model["calls"], model["sessions"], model["provider"]) == (1, 1, "scripted")
    (day,) = report["by_day"]
    assert day["total_tokens"] == model["total_tokens"] == report["total"]["total_tokens"]
    (project,) = report["by_project"]
    assert project["project_id"] == worker.project_id
    top = [row["session_id"] for row in report["top_sessions"]]
    assert top == ([session] if model["total_tokens"] else [])
    none = worker.store.read(lambda db: usage(db, worker.operator_id, since=2**50))
    assert (none["by_model"], none["total"]["calls"]) == ([], 0)
    assert none["total"]["cost_status"] == "unknown"


async def test_a_finished_run_gives_its_session_a_title(worker: LocalWorker) -> None:
    session = worker.session()
    await worker.run(session, "Mend the\nroof")
    row = await worker.state(session, "idle")
    assert (row.title, row.title_source) == ("Mend the roof", "auto")


@pytest.mark.req("T-006", "T-017")
async def test_chat_messages_that_wait_are_sent_one_after_the_other(worker: LocalWorker) -> None:
    chats, chat, place = await open_chat(worker)
    session_id = await queue_lines(chat, place, "line 0", "line 1", "line 2")
    while await chats.deliver(worker.sessions):
        await worker.state(session_id, "idle")
    log = worker.store.read(lambda db: chat_log.get_messages(db, place))
    assert [line.content for line in log if line.role == "user"] == ["line 0", "line 1", "line 2"]
    assert [line.state for line in log] == ["done"] * len(log)
    assert len([line for line in log if line.role == "assistant"]) == 3
    assert await chat.read(lambda _db, session: session.message_count) == 3
