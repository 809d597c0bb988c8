"""Chats over HTTP, with the workflows doubled, and the worker's loop that serves those who wait."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from holdfast.domain.ids import new_id
from holdfast.storage.chats import conversations, rows
from holdfast.storage.database.rows import change
from holdfast.storage.database.tables import Run
from holdfast.storage.database.tables_library import ChatMessage
from holdfast.storage.sessions import messages, runs, sessions
from tests.support.api_server import Caller

PATH = "/chats/ann@example/room-1"


def say(caller: Caller, content: str, **fields: Any) -> dict[str, Any]:
    """A message that is taken."""
    answer = caller.http.post(f"{PATH}/messages", json={"content": content, **fields})
    assert answer.status_code == 202, answer.text
    taken: dict[str, Any] = answer.json()
    return taken


def answer_run(caller: Caller, session_id: str, content: str) -> None:
    """Let the run end with an answer."""

    def reply(db: Any) -> None:
        run_id = sessions.get(db, session_id).active_run
        said = messages.append(db, session_id, role="primary", content=content, run_id=run_id)
        change(db, Run, run_id, primary_response=said.id, cost_usd=0.5)

    caller.api.store.write(reply)
    caller.api.double.finish(session_id)


def settle(caller: Caller, *, lost_after_ms: int = 60_000) -> None:
    """What the worker does with lines that were sent."""
    store = caller.api.store
    for line in _lines(caller, "sent"):
        store.write(
            lambda db, line=line: conversations.settle(db, line, lost_after_ms=lost_after_ms)  # type: ignore[misc]
        )


def claim(caller: Caller) -> list[str]:
    """What the worker does with lines that wait: the messages that it would send now."""
    store = caller.api.store
    claimed = []
    for line in _lines(caller, "queued"):
        session = store.write(
            lambda db, line=line: conversations.claim_next(db, store.home, line)  # type: ignore[misc]
        )
        if session is not None:
            claimed.append(line.content)
    return claimed


def _lines(caller: Caller, state: str) -> list[ChatMessage]:
    """The caller's lines; others of the shared store are not this test's."""
    found = caller.api.store.read(lambda db: rows.in_state(db, state, limit=1_000))
    return [line for line in found if line.operator_id == caller.id]


@pytest.mark.req("T-003", "T-004", "T-017")
def test_a_chat_makes_its_session_and_goes_on_with_it(caller: Caller) -> None:
    assert caller.http.get(f"{PATH}/messages").status_code == 404
    first = say(caller, "hello", mode="auto", source="telegram")
    assert (first["queued"], first["session"]["state"]) == (False, "running")
    assert (first["session"]["source"], first["session"]["mode"]) == ("telegram", "auto")
    assert Path(first["session"]["working_directory"]).is_dir()
    answer_run(caller, first["session_id"], "hi there")
    settle(caller)
    chat = caller.http.get(PATH).json()
    assert chat["session_id"] == first["session_id"]
    assert [(line["role"], line["content"]) for line in chat["messages"]] == [
        ("user", "hello"),
        ("assistant", "hi there"),
    ]
    assert (chat["message_count"], chat["total_cost"], chat["mode"]) == (1, 0.5, "auto")
    second = say(caller, "again")
    assert second["session_id"] == first["session_id"]
    assert [item["chat_id"] for item in caller.http.get("/chats").json()["items"]] == ["room-1"]


@pytest.mark.req("T-003", "T-004", "T-012")
def test_looking_at_a_chat_finds_or_makes_it(caller: Caller, tmp_path: Path) -> None:
    wanted = {"working_directory": str(tmp_path), "mode": "auto", "source": "telegram"}
    made = caller.http.get(PATH, params=wanted)
    assert made.status_code == 200, made.text
    chat = made.json()
    assert (chat["is_active"], chat["message_count"], chat["messages"]) == (True, 0, [])
    assert (chat["session"]["state"], chat["session"]["source"]) == ("idle", "telegram")
    assert (chat["mode"], chat["working_directory"]) == ("auto", str(tmp_path))
    # It is stored, so the next look finds it, whatever it asks for.
    again = caller.http.get(PATH, params={"mode": "plan"}).json()
    assert (again["session_id"], again["mode"]) == (chat["session_id"], "auto")
    assert say(caller, "hello")["session_id"] == chat["session_id"]
    assert caller.http.delete(PATH).status_code == 200
    fresh = caller.http.get(PATH).json()
    assert fresh["session_id"] != chat["session_id"]
    assert caller.http.get("/chats/a/b", params={"mode": "odd"}).status_code == 400
    assert caller.http.get("/chats/a/b/messages").status_code == 404


@pytest.mark.req("K-028")
def test_a_busy_chat_refuses_or_lets_wait_in_order(caller: Caller) -> None:
    first = say(caller, "one")
    refused = caller.http.post(f"{PATH}/messages", json={"content": "two"})
    assert refused.status_code == 409
    waiting = [say(caller, text, on_busy="queue") for text in ("two", "three")]
    assert [item["queued"] for item in waiting] == [True, True]
    assert [item["reason"] for item in waiting] == ["busy", "busy"]
    assert waiting[1]["chat"]["waiting"] == 2
    assert claim(caller) == []
    answer_run(caller, first["session_id"], "done one")
    settle(caller)
    # Two waits, so a new message may not overtake it although nothing runs.
    late = say(caller, "four", on_busy="queue")
    assert late["queued"]
    assert claim(caller) == ["two"]
    assert claim(caller) == []
    listed = caller.http.get(f"{PATH}/messages").json()["items"]
    assert [line["content"] for line in listed if line["role"] == "user"] == [
        "one",
        "two",
        "three",
        "four",
    ]


def test_a_line_whose_sender_died_waits_again(caller: Caller) -> None:
    say(caller, "one")
    store, line_id = caller.api.store, new_id()

    def die(db: Any) -> None:
        chat = rows.load(db, caller.id, "api", "ann@example", "room-1")
        assert chat is not None
        place = conversations.Place(caller.id, "ann@example", "room-1")
        conversations.send_now(db, place, chat.session_id, line_id, "lost")

    store.write(die)
    settle(caller)
    assert line_id in [line.id for line in _lines(caller, "sent")]
    settle(caller, lost_after_ms=-1)
    assert [line.content for line in _lines(caller, "queued")] == ["lost"]


@pytest.mark.req("T-007", "T-012")
def test_a_deleted_chat_stays_in_the_log_and_begins_anew(caller: Caller) -> None:
    first = say(caller, "one")
    say(caller, "two", on_busy="queue")
    assert caller.http.delete(PATH).json()["is_active"] is False
    assert caller.http.delete(PATH).status_code == 404
    assert claim(caller) == []
    kept = caller.http.get(f"{PATH}/messages").json()["items"]
    assert [line["content"] for line in kept] == ["one"]
    fresh = say(caller, "three")
    assert fresh["session_id"] != first["session_id"]
    listed = caller.http.get(f"{PATH}/messages", params={"limit": 1, "offset": 1}).json()
    assert [line["content"] for line in listed["items"]] == ["three"]


def test_a_session_that_is_over_is_followed_by_a_new_one(caller: Caller) -> None:
    first = say(caller, "one")
    caller.api.double.finish(first["session_id"])
    assert caller.http.delete(f"/sessions/{first['session_id']}?confirm=true").status_code == 200
    second = say(caller, "two")
    assert second["session_id"] != first["session_id"]


def test_a_chat_may_take_place_in_a_project(caller: Caller, tmp_path: Path) -> None:
    project = caller.project(tmp_path / "folder")
    (tmp_path / "folder" / "inner").mkdir()
    taken = say(
        caller,
        "hello",
        project=project["id"],
        working_directory=str(tmp_path / "folder" / "inner"),
    )
    assert taken["session"]["project_id"] == project["id"]
    assert taken["session"]["working_directory"].endswith("inner")
    for fields in ({"project": "absent"}, {"working_directory": "relative"}, {"mode": "odd"}):
        body = {"content": "x", **fields}
        assert caller.http.post("/chats/x/y/messages", json=body).status_code in (400, 404)


def test_the_same_key_says_it_once(caller: Caller) -> None:
    headers = {"Idempotency-Key": new_id()}
    body = {"content": "hello"}
    answers = [
        caller.http.post(f"{PATH}/messages", json=body, headers=headers).json() for _ in range(2)
    ]
    assert answers[0] == answers[1]
    assert len(caller.http.get(PATH).json()["messages"]) == 1
    found = caller.api.store.read(lambda db: runs.find(db, answers[0]["run"]["id"]))
    assert found is not None
