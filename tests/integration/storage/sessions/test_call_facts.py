"""Calls of models: small descriptors instead of copies, and nothing beside them for a leaf."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import func, select

from holdfast.domain.canonical import canonical
from holdfast.domain.compaction_steps import Compacted
from holdfast.storage.database.opening import OpenStore
from holdfast.storage.database.rows import table
from holdfast.storage.database.tables import Call, SessionRow, SubagentInvocation
from holdfast.storage.moves import compactions, heads
from holdfast.storage.sessions import calls, requests
from tests.support.local_worker import LocalWorker, script
from tests.support.step_runner import StepRunner
from tests.support.stored_rows import tool_calls_of
from tests.support.workflow_double import WorkflowDouble

SUMMARIZING = """
version: 1
project: short
primary:
  model: scripted:echo
  tools: {"*": {enabled: false}}
  compaction: {strategy: summarize}
"""
WORDS = "the quick brown fox jumps over the lazy dog and goes home " * 30


def calls_of(store: OpenStore, session_id: str) -> list[Call]:
    place = table(Call)
    rows = select(place).where(place.c.session_id == session_id).order_by(place.c.id)
    return store.read(lambda db: [Call(**one._mapping) for one in db.connection().execute(rows)])


def request_of(store: OpenStore, call: Call) -> dict[str, Any]:
    assert call.request_ref is not None
    found: dict[str, Any] = store.blobs.read_json(call.request_ref)
    return found


@pytest.mark.req("F-014", "F-035", "F-036")
async def test_a_request_is_described_and_its_answer_ends_the_run_not_the_session(
    worker: LocalWorker,
) -> None:
    session = worker.session()
    first = await worker.run(session, f"remember {'plum ' * 400}")
    await worker.state(session, "idle")
    await worker.run(session, "and now?")
    row = await worker.state(session, "idle")
    made = calls_of(worker.store, session)
    early, late = (request_of(worker.store, call) for call in made)
    for request in (early, late):
        assert (request["request_version"], request["kind"]) == (2, "root-agent")
        assert request["rendered"] is False
        assert (request["provider"], request["model"]) == ("scripted", "echo")
        assert request["system_hash"]
        assert b"plum" not in canonical(request)
    said = worker.messages(session)
    assert (early["message_count"], late["message_count"]) == (1, 3)
    assert late["message_ids"] == [[said[0].id, said[2].id]]
    assert late["cache"] == {"id": session}
    named = worker.store.read(lambda db: requests.ids(db, late["message_ids"], [session]))
    assert named == [message.id for message in said[:3]]
    assert len(canonical(late)) < len(canonical(early)) + 64, "it does not grow with the history"
    head = worker.store.read(lambda db: heads.of(db, session, run_id=first.id))
    assert head is not None
    assert head.final_ref == said[1].id
    assert [call.head for call in made] == [None, head.id], "the head that the call was made at"
    assert [call.message_id for call in made] == [said[1].id, said[3].id]
    assert (row.state, row.ended_at) == ("idle", None)


@pytest.mark.req("F-026")
async def test_rows_are_there_while_the_run_goes_on(worker: LocalWorker) -> None:
    session = worker.session()
    pause = {"call": "checkpoint", "arguments": {"reason": "look"}}
    sent = await worker.send(session, script({"call": "list_files"}, pause, {"say": "over"}))
    run_id = str(sent.run_id)
    await worker.state(session, "paused")
    assert worker.run_row(run_id).completed_at is None
    assert worker.store.read(lambda db: heads.of(db, session, run_id=run_id)) is None
    assert [message.role for message in worker.messages(session)] == [
        *("operator", "primary", "tool", "primary"),
    ]
    assert [call.status for call in calls_of(worker.store, session)] == ["done", "done"]
    used = worker.store.read(lambda db: tool_calls_of(db, run_id))
    assert [call.tool_name for call in used] == ["list_files", "checkpoint"]
    assert used[0].state == "done"
    await worker.resume(session)
    assert (await worker.over(run_id)).state == "done"


@pytest.mark.req("F-035")
def test_ranges_name_every_message_and_no_other(sqlite_store: OpenStore) -> None:
    workflow = WorkflowDouble(sqlite_store)
    source = workflow.session()
    first = [workflow.say(source, f"message {number}") for number in range(6)]
    fork = workflow.fork(source)
    own = [workflow.say(fork, f"own {number}") for number in range(3)]
    workflow.say(source, "unseen by the fork")
    shown = [own[0], first[0], first[1], first[2], first[4], first[5], own[1], own[2]]
    named = requests.ranges(shown)
    assert named == [
        [own[0].id, own[0].id],
        [first[0].id, first[2].id],
        [first[4].id, first[5].id],
        [own[1].id, own[2].id],
    ]
    ids = sqlite_store.read(lambda db: requests.ids(db, named, [source, fork]))
    assert ids == [message.id for message in shown]
    assert own[0].seq == first[5].seq + 1
    assert len(requests.ranges([first[5], own[0]])) == 2, "numbers of two sessions"
    assert requests.ranges([]) == []


async def compacted(store: OpenStore, folder: Path) -> Compacted:
    """A long run whose beginning a model has summed up."""
    shop = StepRunner(store, folder / "p", SUMMARIZING)
    run = shop.begin("what is the answer?")
    for _ in range(12):
        shop.use_tool(run, WORDS)
    return await shop.compact(run_id=run)


@pytest.mark.req("F-014", "F-035", "F-036")
async def test_a_leaf_call_keeps_its_request_and_its_whole_answer(
    sqlite_store: OpenStore, tmp_path: Path
) -> None:
    done = await compacted(sqlite_store, tmp_path)
    call = sqlite_store.read(lambda db: calls.get(db, done.compaction_id))
    request = request_of(sqlite_store, call)
    assert (request["kind"], request["rendered"]) == ("leaf-agent", True)
    assert "quick brown fox" in canonical(request["messages"]).decode()
    named = sqlite_store.read(
        lambda db: requests.ids(db, request["message_ids"], [call.session_id])
    )
    record = sqlite_store.read(lambda db: compactions.find(db, done.compaction_id))
    assert record is not None
    assert named == record.superseded_message_ids
    assert request["message_count"] == len(named) > 0
    answer = sqlite_store.blobs.read(str(call.response_ref)).decode()
    assert answer
    assert answer in str(record.summary)


@pytest.mark.req("F-036")
async def test_a_call_without_an_agent_leaves_a_call_and_nothing_else(
    sqlite_store: OpenStore, tmp_path: Path
) -> None:
    done = await compacted(sqlite_store, tmp_path)
    call = sqlite_store.read(lambda db: calls.find(db, done.compaction_id))
    assert call is not None
    assert (call.type, call.status) == ("leaf-agent", "done")
    for model, expected in ((SubagentInvocation, 0), (SessionRow, 1)):
        count = select(func.count()).select_from(table(model))
        found = sqlite_store.read(
            lambda db, one=count: db.connection().execute(one).scalar_one()  # type: ignore[misc]
        )
        assert found == expected
