"""Runs from the message to the answer, through a real Temporal server."""

from __future__ import annotations

import asyncio

import pytest

from holdfast.settings.config import Config
from tests.support.local_worker import LocalWorker, script
from tests.support.stored_rows import tool_calls_of


@pytest.mark.req("K-014", "K-018", "K-026", "K-028", "K-034", "K-036")
async def test_a_message_is_answered_and_the_session_idle_again(worker: LocalWorker) -> None:
    session = worker.session()
    run = await worker.run(session, "hello")
    assert (run.state, run.error, run.steps) == ("done", None, 1)
    assert worker.texts(session) == ["hello", "You said: hello"]
    row = await worker.state(session, "idle")
    assert (row.active_run, row.run_count, row.title) == (None, 1, "hello")
    kinds = worker.kinds(session)
    moves = [one.data["to_state"] for one in worker.events(session) if one.kind == "session.state"]
    assert moves == ["running", "idle"]
    assert kinds.count("sessions.running_count") == 2
    assert kinds.count("run.created") == kinds.count("run.completed") == 1


@pytest.mark.req("K-038", "K-039", "K-105")
async def test_a_tool_call_is_made_and_its_result_shown_to_the_model(worker: LocalWorker) -> None:
    session = worker.session()
    steps = script(
        {"say": "I write.", "call": "write_file", "arguments": {"path": "a.txt", "content": "hi"}},
        {"call": "read_file", "arguments": {"path": "a.txt"}},
        {"say": "Done."},
    )
    run = await worker.run(session, steps)
    assert (run.state, run.steps) == ("done", 3)
    roles = [message.role for message in worker.messages(session)]
    assert roles == ["operator", "primary", "tool", "primary", "tool", "primary"]
    calls = worker.store.read(lambda db: tool_calls_of(db, run.id))
    assert [(call.tool_name, call.state) for call in calls] == [
        ("write_file", "done"),
        ("read_file", "done"),
    ]
    answer = worker.messages(session)[-1]
    assert run.primary_response == answer.id
    assert answer.content == "Done."


@pytest.mark.req("K-124", "K-119")
async def test_the_spine_stands_on_postgres_too(postgres_worker: LocalWorker) -> None:
    worker = postgres_worker
    session = worker.session()
    run = await worker.run(session, script({"call": "list_files"}, {"say": "Done."}))
    assert (run.state, worker.row(session).run_count) == ("done", 1)
    busy = [worker.session() for _ in range(6)]
    hanging = script({"hang_s": 60})
    answers = await asyncio.gather(*(worker.send(one, hanging) for one in busy))
    states = sorted(answer.state for answer in answers)
    assert states == ["queued"] * 2 + ["running"] * 4, "the limit holds when all come at once"
    running = next(one for one, answer in zip(busy, answers, strict=True) if not answer.queued)
    paused = await worker.pause(running)
    await worker.roll_back(running, paused.checkpoint_id or "")
    assert (await worker.run(running, "again")).state == "done"
    kinds = worker.kinds(session)
    assert kinds[0] == "session.created"
    assert "run.created" in kinds


async def test_an_answer_with_two_thousand_calls_has_most_of_them_refused(
    worker: LocalWorker,
) -> None:
    wide = {"scripted": {"driver": "scripted", "context_window": 1_000_000}}
    worker.config = Config.model_validate({"providers": wide, "aliases": worker.config.aliases})
    session = worker.session()
    calls = [{"call": "list_files"} for _ in range(2000)]
    run = await worker.run(session, script({"calls": calls}, {"say": "Done."}))
    assert (run.state, run.steps) == ("done", 2)
    stored = worker.store.read(lambda db: tool_calls_of(db, run.id))
    words = "one answer may call 64 tools, and this one called 2000"
    refused = [call.position for call in stored if words in str(call.output)]
    assert refused == list(range(64, 128))
    assert [call.position for call in stored] == list(range(128))
    assert worker.messages(session)[-1].content == "Done."
