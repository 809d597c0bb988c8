"""Chats over HTTP, with the workflows doubled: finding, waiting, ending."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlmodel import col, select

import api.chats
from holdfast.domain.commands import Answer, Command
from holdfast.domain.errors import Unavailable
from holdfast.domain.ids import new_id
from holdfast.storage.chats import chat_log, delivery
from holdfast.storage.chats.chat_session import Place
from holdfast.storage.chats.conversations import Wanted
from holdfast.storage.chats.database_store import DatabaseSessionStore
from holdfast.storage.chats.delivery import Incoming
from holdfast.storage.chats.session_manager import SessionManager
from holdfast.storage.database.engine import Db
from holdfast.storage.database.tables import SessionRow
from holdfast.storage.database.tables_library import ChatMessage
from holdfast.storage.sessions import runs, waiting
from tests.support.chatting import PATH, answer_run, lines, say, sent_to, show, state_of
from tests.support.servers.api_server import ApiServer, Caller
from tests.support.waiting import wait_for


@pytest.fixture(scope="module", autouse=True)
def quick_rounds() -> Iterator[None]:
    """Messages that wait are looked after without a pause to speak of."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(api.chats, "BUSY_PAUSE_S", 0.02)
        patch.setattr(api.chats, "IDLE_PAUSE_S", 0.02)
        yield


@pytest.mark.req("T-003", "T-004", "T-017")
def test_a_chat_makes_its_session_and_goes_on_with_it(caller: Caller) -> None:
    assert caller.http.get(f"{PATH}/messages").status_code == 404
    first = say(caller, "hello", mode="auto", source="telegram")
    assert (first["queued"], first["session"]["state"]) == (False, "running")
    assert (first["session"]["source"], first["session"]["mode"]) == ("telegram", "auto")
    assert Path(first["session"]["working_directory"]).is_dir()
    answer_run(caller, first["session_id"], "hi there")
    chat = show(caller)
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
    waiting = [say(caller, text, on_busy="queue") for text in ("two", "three", "four")]
    assert [item["queued"] for item in waiting] == [True, True, True]
    assert [item["reason"] for item in waiting] == ["busy", "busy", "busy"]
    assert waiting[2]["chat"]["waiting"] == 3
    session_id = first["session_id"]
    for content in ("one", "two", "three", "four"):
        wait_for(lambda: state_of(caller, session_id) == "running", "the next message to run")
        assert sent_to(caller)[-1] == (content, session_id)
        answer_run(caller, session_id, f"done {content}")
    # Each was sent once: none before the run of the one before it was over.
    assert [content for content, _ in sent_to(caller)] == ["one", "two", "three", "four"]
    assert lines(caller)[-1] == ("assistant", "done four")
    assert (show(caller)["message_count"], show(caller)["waiting"]) == (4, 0)


def test_a_steered_line_goes_into_the_run_that_goes_on_and_gets_its_answer(
    caller: Caller,
) -> None:
    first = say(caller, "one")
    steered = say(caller, "two", on_busy="steer")
    assert (steered["run"]["id"], steered["queued"]) == (first["run"]["id"], False)
    said = (first["session_id"], first["run"]["id"])
    assert caller.api.store.write(lambda db: waiting.steer(db, *said)) == 1
    answer_run(caller, first["session_id"], "both done")
    wait_for(lambda: not open_lines(caller), "both lines to be answered")
    assert lines(caller) == [("user", "one"), ("user", "two"), ("assistant", "both done")]


def test_an_interrupt_in_a_chat_ends_its_run_and_begins_another(caller: Caller) -> None:
    first = say(caller, "one")
    second = say(caller, "stop", on_busy="interrupt")
    assert second["run"]["id"] != first["run"]["id"]
    answer_run(caller, first["session_id"], "stopped")
    wait_for(lambda: not open_lines(caller), "both lines to be answered")
    assert lines(caller)[-1] == ("assistant", "stopped")


def test_a_steered_line_that_is_taken_back_does_not_come_again(
    caller: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(api.chats, "LOST_AFTER_MS", 0)
    first = say(caller, "one")
    steered = say(caller, "no", on_busy="steer")
    path = f"/sessions/{first['session_id']}/waiting/{steered['message_id']}"
    assert caller.http.delete(path).status_code == 200
    answer_run(caller, first["session_id"], "done one")
    wait_for(lambda: not open_lines(caller), "the line of before to be answered")
    assert [content for content, _ in sent_to(caller)] == ["one"]


def open_lines(caller: Caller) -> list[str]:
    """The states of lines that somebody still waits for."""

    def look(db: Db) -> list[str]:
        rows = select(ChatMessage.state).where(col(ChatMessage.operator_id) == caller.id)
        return [one for one in db.exec(rows) if one in ("sent", "queued")]

    return caller.api.store.read(look)


@pytest.mark.req("K-028")
def test_a_new_message_never_overtakes_one_that_waits(
    own_api: ApiServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    caller = own_api.operator()
    # Nobody comes to send what waits.
    monkeypatch.setattr(chat_log, "to_send", lambda _db, *, limit: [])
    first = say(caller, "one")
    say(caller, "two", on_busy="queue")
    answer_run(caller, first["session_id"], "done one")
    assert state_of(caller, first["session_id"]) == "idle"
    assert caller.http.post(f"{PATH}/messages", json={"content": "three"}).status_code == 409
    assert say(caller, "three", on_busy="queue")["chat"]["waiting"] == 2
    caller.close()


async def test_a_message_whose_sender_died_is_sent_again(
    own_api: ApiServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, caller = own_api.store, own_api.operator()
    place = Place(caller.id, "ann@example", "room-1")
    said = Incoming(new_id(), "lost", may_wait=False)
    session_id = show(caller)["session_id"]
    manager = SessionManager(DatabaseSessionStore(store, caller.id), store)
    chat = await manager.find(place.user_id, place.chat_id)
    assert chat is not None
    # Staged by an API that was killed before it could ask the session.
    await manager.change(
        chat, lambda db, chat: delivery.say(db, store.home, place, chat, Wanted(), said)
    )
    assert show(caller)["messages"][0]["state"] == "sent"
    monkeypatch.setattr(api.chats, "LOST_AFTER_MS", -1)
    wait_for(lambda: state_of(caller, session_id) == "running", "the message to be sent again")
    assert sent_to(caller) == [("lost", session_id)]
    caller.close()


@pytest.mark.req("T-007", "T-012")
def test_a_deleted_chat_stays_in_the_log_and_begins_anew(caller: Caller) -> None:
    first = say(caller, "one")
    say(caller, "two", on_busy="queue")
    assert caller.http.delete(PATH).json()["is_active"] is False
    assert caller.http.delete(PATH).status_code == 404
    assert caller.http.get("/chats").json()["items"] == []
    assert lines(caller) == [("user", "one")]
    fresh = say(caller, "three")
    assert fresh["session_id"] != first["session_id"]
    listed = caller.http.get(f"{PATH}/messages", params={"limit": 1, "offset": 1}).json()
    assert [line["content"] for line in listed["items"]] == ["three"]
    # What belonged to the chat before is not counted in the new one, and "two" was never sent.
    answer_run(caller, first["session_id"], "too late")
    assert (show(caller)["message_count"], state_of(caller, first["session_id"])) == (0, "idle")


def test_a_session_that_is_over_is_followed_by_one_in_the_same_folder(
    caller: Caller, tmp_path: Path
) -> None:
    project = caller.project(tmp_path / "folder")
    first = say(caller, "one", project=project["id"], mode="auto", source="telegram")
    say(caller, "two", on_busy="queue")
    # Ended while "two" waits: it goes to the session that follows.
    assert caller.http.delete(f"/sessions/{first['session_id']}?confirm=true").status_code == 200
    wait_for(lambda: show(caller)["session_id"] != first["session_id"], "the next session")
    chat = show(caller)
    assert chat["session"]["project_id"] == project["id"]
    assert chat["working_directory"] == first["session"]["working_directory"]
    assert (chat["session"]["mode"], chat["session"]["source"]) == ("auto", "telegram")
    wait_for(lambda: ("two", chat["session_id"]) in sent_to(caller), "the message that waited")


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
    assert caller.http.get("/chats/x/y/messages").status_code == 404


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


def test_a_repeated_request_is_not_refused_because_its_own_message_runs(
    own_api: ApiServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    caller, send = own_api.operator(), own_api.double.send

    async def lose_the_answer(session: SessionRow, name: str, command: Command) -> Answer:
        await send(session, name, command)
        monkeypatch.setattr(own_api.double, "send", send)
        raise Unavailable("no answer")

    monkeypatch.setattr(own_api.double, "send", lose_the_answer)
    headers, body = {"Idempotency-Key": new_id()}, {"content": "hello"}
    first = caller.http.post(f"{PATH}/messages", json=body, headers=headers)
    assert first.status_code == 503
    second = caller.http.post(f"{PATH}/messages", json=body, headers=headers)
    assert (second.status_code, second.json()["queued"]) == (202, False)
    assert second.json()["run"]["state"] == "running"
    assert lines(caller) == [("user", "hello")]
    caller.close()
