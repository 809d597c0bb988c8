"""The sessions behind chats over HTTP: the cache, `/clear`, and the backend as a setting."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import func, select

import api.chats
from api.services import make_services
from holdfast.domain.ids import new_id
from holdfast.settings.environment import SettingsError
from holdfast.storage.database.opening import OpenStore
from holdfast.storage.database.rows import table
from holdfast.storage.database.tables_library import Chat
from tests.support.chatting import PATH, answer_run, lines, say, sent_to, show, state_of
from tests.support.notebook_store import BACKEND, NotebookStore
from tests.support.servers.api_server import CONFIG, ApiServer, Caller
from tests.support.waiting import wait_for

Start = Callable[..., ApiServer]


@pytest.fixture(autouse=True)
def quick_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Messages that wait are looked after without a pause to speak of."""
    monkeypatch.setattr(api.chats, "BUSY_PAUSE_S", 0.02)
    monkeypatch.setattr(api.chats, "IDLE_PAUSE_S", 0.02)


@pytest.fixture
def start(sqlite_store: OpenStore, tmp_path: Path) -> Iterator[Start]:
    """Starts an API with these settings of chats; all of them share a database."""
    running: list[ApiServer] = []

    def begin(**chats: Any) -> ApiServer:
        table = "".join(f"{key} = {value!r}\n" for key, value in chats.items())
        home = tmp_path / f"api-home-{len(running)}"
        served = ApiServer(sqlite_store, home, config=f"{CONFIG}[chats]\n{table}")
        running.append(served.start())
        return served

    yield begin
    for served in running:
        served.stop()


def restart(served: ApiServer) -> None:
    """As after SIGTERM; what only the process knew is gone."""
    served.stop()
    served.start()


def cached(caller: Caller) -> int:
    """How many sessions the API says it has in memory."""
    found = re.search(r"^holdfast_chats_cached (\S+)$", caller.http.get("/metrics").text, re.M)
    assert found is not None
    return int(float(found[1]))


def chat_rows(store: OpenStore) -> int:
    """How many chats are in the database."""
    count = select(func.count()).select_from(table(Chat))
    return int(store.read(lambda db: db.connection().execute(count).scalar_one()))


@pytest.mark.req("T-002", "T-003", "T-005")
def test_a_chat_in_memory_is_not_looked_up_in_the_store(start: Start) -> None:
    served = start(backend=BACKEND)
    caller = served.operator()
    first = say(caller, "one")
    notebook = NotebookStore.of(caller.id)
    notebook.calls.clear()
    answer_run(caller, first["session_id"], "done one")
    assert say(caller, "two")["session_id"] == show(caller)["session_id"] == first["session_id"]
    assert "load" not in notebook.calls
    restart(served)
    assert cached(caller) == 0
    assert show(caller)["session_id"] == first["session_id"]
    assert notebook.calls.count("load") == 1
    assert cached(caller) == 1
    caller.close()


@pytest.mark.req("T-005", "T-008")
def test_a_chat_that_expired_in_memory_is_loaded_again(start: Start) -> None:
    served = start(backend=BACKEND, cache_hours=1e-9)
    caller = served.operator()
    first = say(caller, "one")
    loads = NotebookStore.of(caller.id).calls.count
    for _ in range(10):
        before = loads("load")
        assert show(caller)["session_id"] == first["session_id"]
        assert loads("load") > before
    wait_for(lambda: cached(caller) == 0, "expired sessions to leave the memory")
    assert show(caller)["session_id"] == first["session_id"]
    caller.close()


@pytest.mark.req("T-008")
def test_a_chat_stays_in_memory_until_it_expires(start: Start) -> None:
    served = start(cache_hours=1)
    caller = served.operator()
    first = say(caller, "one")
    answer_run(caller, first["session_id"], "done one")  # a round of the loop that cleans up
    assert cached(caller) == 1
    caller.close()


@pytest.mark.req("T-006")
def test_each_answer_is_counted_and_stored(start: Start) -> None:
    served = start()
    caller = served.operator()
    before = show(caller)
    session_id = before["session_id"]
    assert (before["message_count"], before["total_cost"]) == (0, 0)
    for number in (1, 2):
        say(caller, f"question {number}")
        answer_run(caller, session_id, f"answer {number}")
    restart(served)
    after = show(caller)
    assert (after["message_count"], after["total_cost"]) == (2, 1.0)
    assert after["last_used"] > before["last_used"]
    assert (after["created_at"], after["claude_session_id"]) == (before["created_at"], session_id)
    caller.close()


@pytest.mark.req("T-010")
def test_clear_lets_the_next_message_begin_a_new_session_in_the_same_folder(
    start: Start, tmp_path: Path
) -> None:
    served = start()
    caller = served.operator()
    project = caller.project(tmp_path / "folder")
    first = say(caller, "one", project=project["id"])
    answer_run(caller, first["session_id"], "done one")
    cleared = say(caller, " /clear\n")
    assert (cleared["run"], cleared["queued"], cleared["reason"]) == (None, False, "cleared")
    assert cleared["chat"]["claude_session_id"] is None
    assert cleared["session_id"] == first["session_id"]
    restart(served)
    assert show(caller)["claude_session_id"] is None
    second = say(caller, "two")
    assert second["session_id"] not in ("", first["session_id"])
    assert second["session"]["project_id"] == project["id"]
    assert second["session"]["working_directory"] == first["session"]["working_directory"]
    answer_run(caller, second["session_id"], "done two")
    # It goes on there, what was said before is still in its own session, and "/clear" in none.
    assert say(caller, "/clear it all")["session_id"] == second["session_id"]
    assert (show(caller)["message_count"], state_of(caller, first["session_id"])) == (2, "idle")
    assert [content for content, _ in sent_to(caller)] == ["one", "two", "/clear it all"]
    assert ("user", " /clear\n") in lines(caller)
    caller.close()


@pytest.mark.req("T-006", "T-010")
def test_clear_during_a_run_holds_when_the_answer_comes_after_it(start: Start) -> None:
    served = start()
    caller = served.operator()
    first = say(caller, "one")
    say(caller, "two", on_busy="queue")
    headers = {"Idempotency-Key": new_id()}
    for _ in range(2):
        body = {"content": "/clear"}
        assert caller.http.post(f"{PATH}/messages", json=body, headers=headers).status_code == 202
    # The new session does not wait for the old one.
    second = say(caller, "three")
    assert (second["queued"], second["session"]["state"]) == (False, "running")
    answer_run(caller, first["session_id"], "done one")
    wait_for(lambda: ("two", first["session_id"]) in sent_to(caller), "what waited before")
    answer_run(caller, second["session_id"], "done three")
    chat = show(caller)
    assert chat["session_id"] == chat["claude_session_id"] == second["session_id"]
    assert (chat["message_count"], chat["total_cost"]) == (2, 1.0)
    caller.close()


@pytest.mark.req("T-010")
def test_the_last_answer_before_a_new_session_does_not_bring_the_old_one_back(
    start: Start,
) -> None:
    served = start()
    caller = served.operator()
    first = say(caller, "one")
    say(caller, "/clear")
    answer_run(caller, first["session_id"], "done one")
    wait_for(lambda: show(caller)["message_count"] == 1, "the answer to be counted")
    assert say(caller, "two")["session_id"] != first["session_id"]
    caller.close()


@pytest.mark.req("T-002", "T-010")
def test_what_another_api_process_cleared_or_deleted_is_seen_at_once(start: Start) -> None:
    here = start()
    caller = here.operator()
    there = Caller(start(), caller.id, caller.token)
    first = say(caller, "one")
    answer_run(caller, first["session_id"], "done one")
    assert show(there)["session_id"] == first["session_id"]
    say(there, "/clear")
    second = say(caller, "two")
    assert second["session_id"] != first["session_id"]
    assert show(there)["session_id"] == second["session_id"]
    assert there.http.delete(PATH).status_code == 200
    third = say(caller, "three")
    assert third["session_id"] not in (first["session_id"], second["session_id"])
    assert third["chat"]["message_count"] == 0
    assert [chat["session_id"] for chat in there.http.get("/chats").json()["items"]] == [
        third["session_id"]
    ]
    caller.close()
    there.close()


@pytest.mark.req("T-011", "T-018")
def test_the_memory_backend_forgets_chats_but_never_messages(
    start: Start, sqlite_store: OpenStore
) -> None:
    served = start(backend="memory", cache_hours=1e-9)
    caller = served.operator()
    first = say(caller, "one", mode="auto")
    # The cache forgets at once, so this is the store.
    assert say(caller, "two", on_busy="queue")["session_id"] == first["session_id"]
    assert [chat["mode"] for chat in caller.http.get("/chats").json()["items"]] == ["auto"]
    assert chat_rows(sqlite_store) == 0
    restart(served)
    assert caller.http.get("/chats").json()["items"] == []
    assert lines(caller) == [("user", "one"), ("user", "two")]
    fresh = say(caller, "three")
    assert fresh["session_id"] != first["session_id"]
    assert fresh["chat"]["mode"] == "plan"
    # What was acknowledged before the restart is still delivered where it belongs.
    answer_run(caller, first["session_id"], "done one")
    wait_for(lambda: ("two", first["session_id"]) in sent_to(caller), "what waited before")
    assert chat_rows(sqlite_store) == 0
    caller.close()


@pytest.mark.req("T-007", "T-011")
def test_a_chat_deleted_from_the_memory_backend_is_gone(start: Start) -> None:
    caller = start(backend="memory").operator()
    first = say(caller, "one")
    say(caller, "two", on_busy="queue")
    assert caller.http.delete(PATH).json()["is_active"] is False
    assert caller.http.delete(PATH).status_code == 404
    assert (caller.http.get("/chats").json()["items"], cached(caller)) == ([], 0)
    assert lines(caller) == [("user", "one")]
    assert say(caller, "three")["session_id"] != first["session_id"]
    caller.close()


def test_a_message_that_waited_for_an_ended_session_survives_a_forgotten_chat(
    start: Start,
) -> None:
    served = start(backend="memory")
    caller = served.operator()
    first = say(caller, "one")
    say(caller, "two", on_busy="queue")
    restart(served)
    assert caller.http.delete(f"/sessions/{first['session_id']}?confirm=true").status_code == 200
    wait_for(lambda: [said for said, _ in sent_to(caller)] == ["one", "two"], "the message")
    caller.close()


@pytest.mark.req("T-001", "T-018")
def test_a_backend_of_ones_own_is_chosen_by_its_name(start: Start, sqlite_store: OpenStore) -> None:
    served = start(backend=BACKEND)
    caller = served.operator()
    first = say(caller, "one")
    answer_run(caller, first["session_id"], "done one")
    notebook = NotebookStore.of(caller.id)
    (kept,) = notebook.sessions.values()
    assert (kept.user_id, kept.chat_id) == ("ann@example", "room-1")
    assert (kept.session_id, kept.message_count) == (first["session_id"], 1)
    assert chat_rows(sqlite_store) == 0
    # The protocol has no list, so it is what the process knows.
    (listed,) = caller.http.get("/chats").json()["items"]
    assert (listed["message_count"], listed["session_id"]) == (1, first["session_id"])
    assert caller.http.delete(PATH).status_code == 200
    assert notebook.sessions == {}
    served.stop()
    assert (notebook.calls[0], notebook.calls[-1]) == ("setup", "teardown")
    caller.close()


@pytest.mark.req("T-018")
def test_the_api_does_not_start_with_a_backend_that_does_not_exist(
    own_api: ApiServer, sqlite_store: OpenStore
) -> None:
    (own_api.settings.home / "config.toml").write_text('[chats]\nbackend = "absent.module:Store"\n')
    with pytest.raises(SettingsError, match=r"chats\.backend: no such backend"):
        make_services(own_api.settings, sqlite_store)
