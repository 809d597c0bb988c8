"""Over HTTP: words at a pause, messages to a busy session, attention, and a run once more."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from holdfast.storage.database.rows import change
from holdfast.storage.database.tables import SessionRow
from holdfast.storage.sessions import waiting
from tests.support.servers.api_server import ApiServer, Caller, hear, hear_until


@pytest.fixture
def session(caller: Caller, tmp_path: Path) -> str:
    """A fresh session's id."""
    return str(caller.session(caller.project(tmp_path / "project")["id"])["id"])


def post(caller: Caller, session: str, content: str, when_busy: str) -> Any:
    """A message; the whole answer."""
    body = {"content": content, "when_busy": when_busy}
    return caller.http.post(f"/sessions/{session}/messages", json=body)


def test_messages_to_a_busy_session_answer_as_the_contract_says(
    caller: Caller, session: str
) -> None:
    first = caller.send(session, "one").json()
    assert post(caller, session, "no", "reject").status_code == 409
    queued = post(caller, session, "two", "queue")
    assert queued.status_code == 202
    assert (queued.json()["run"], queued.json()["waiting"]) == (None, True)
    assert (queued.json()["session"]["waiting"], queued.json()["message"]["seq"]) == (1, 0)
    steered = post(caller, session, "three", "steer").json()
    assert steered["run"]["id"] == first["run"]["id"]
    kept = caller.http.get(f"/sessions/{session}/waiting").json()
    shown = [(one["content"], one["when_busy"]) for one in kept["items"]]
    assert (shown, kept["next_cursor"]) == ([("two", "queue"), ("three", "steer")], None)
    interrupt = post(caller, session, "four", "interrupt").json()
    assert interrupt["run"]["id"] not in (None, first["run"]["id"])
    assert interrupt["message"]["run_id"] == interrupt["run"]["id"]
    path = f"/sessions/{session}/runs/{first['run']['id']}"
    assert caller.http.get(path).json()["state"] == "cancelled"
    assert post(caller, session, "five", "shout").status_code == 400


def test_a_message_that_waits_is_changed_and_taken_back_over_http(
    caller: Caller, session: str, api: ApiServer
) -> None:
    caller.send(session, "one")
    made = post(caller, session, "teh", "queue").json()["message"]["id"]
    path = f"/sessions/{session}/waiting/{made}"
    changed = caller.http.patch(path, json={"content": "the"})
    assert (changed.status_code, changed.json()["content"]) == (200, "the")
    stranger = api.operator()
    assert stranger.http.delete(path).status_code == 404
    stranger.close()
    gone = caller.http.delete(path)
    assert (gone.status_code, gone.json()["waiting"]) == (200, 0)
    assert caller.http.delete(path).status_code == 404


def test_the_twenty_first_message_is_refused_and_leaves_nothing(
    caller: Caller, session: str
) -> None:
    caller.send(session, "one")
    for number in range(waiting.WAITING_MAX):
        assert post(caller, session, f"{number}", "queue").status_code == 202
    refused = post(caller, session, "one too many", "queue")
    assert (refused.status_code, refused.json()["error"]["code"]) == (409, "conflict")
    assert caller.http.get(f"/sessions/{session}").json()["waiting"] == waiting.WAITING_MAX


def test_words_at_a_pause_are_taken_over_http(caller: Caller, session: str) -> None:
    caller.send(session, "one")
    point = caller.http.post(f"/sessions/{session}/checkpoints").json()["id"]
    path = f"/sessions/{session}/checkpoints/{point}/resume"
    assert caller.http.post(path, json={"message": ""}).status_code == 400
    assert caller.http.post(path, json={"message": "go on, please"}).status_code == 200
    (kept,) = caller.http.get(f"/sessions/{session}/waiting").json()["items"]
    assert (kept["content"], kept["when_busy"]) == ("go on, please", "steer")


def test_a_failed_run_asks_for_attention_until_it_is_seen(
    caller: Caller, session: str, api: ApiServer
) -> None:
    with caller.socket("/system/socket") as socket:
        hear(socket)
        run = caller.send(session, "one").json()["run"]["id"]
        api.double.finish(session, state="failed")
        told = hear_until(socket, "sessions.attention")[-1]["payload"]
        found = caller.http.get(f"/sessions/{session}").json()
        assert told == {"session_id": session, "attention": found["attention"]}
        assert (found["attention"]["kind"], found["attention"]["run_id"]) == ("run_failed", run)
        assert (found["last_run"]["id"], found["last_run"]["state"]) == (run, "failed")
        listed = caller.http.get("/sessions", params={"attention": "true"}).json()["items"]
        assert [one["id"] for one in listed] == [session]
        assert listed[0]["last_run"] == found["last_run"]
        numbers = caller.http.get("/metrics").text
        assert 'holdfast_sessions_attention{kind="run_failed"}' in numbers
        seen = caller.http.post(f"/sessions/{session}/attention/seen")
        assert (seen.status_code, seen.json()["attention"]) == (200, None)
        assert hear_until(socket, "sessions.attention")[-1]["payload"]["attention"] is None
    assert caller.http.get("/sessions", params={"attention": "true"}).json()["items"] == []


def test_a_run_is_tried_again_over_http(caller: Caller, session: str, api: ApiServer) -> None:
    run = caller.send(session, "one").json()["run"]["id"]
    path = f"/sessions/{session}/runs/{run}/retry"
    assert caller.http.post(path).status_code == 409
    api.double.finish(session, state="failed")
    assert caller.http.post(f"/sessions/{session}/runs/nosuch/retry").status_code == 404
    again = caller.http.post(path)
    assert again.status_code == 202
    assert again.json()["run"]["operator_message"]["content"] == "one"
    assert again.json()["session"]["active_run"] == again.json()["run"]["id"] != run
    assert again.json()["session"]["attention"] is None


def test_trouble_with_the_provider_is_shown_with_session_and_run(
    caller: Caller, session: str, api: ApiServer
) -> None:
    run = caller.send(session, "one").json()["run"]["id"]
    trouble = {
        "run_id": run,
        "attempt": 2,
        "next_in_ms": 1000,
        "code": "http_503",
        "message": "away",
        "at": 1,
    }
    api.store.write(lambda db: change(db, SessionRow, session, trouble=trouble))
    assert caller.http.get(f"/sessions/{session}").json()["trouble"] == trouble
    assert caller.http.get(f"/sessions/{session}/runs/{run}").json()["trouble"] == trouble
    api.double.finish(session)
    assert caller.http.get(f"/sessions/{session}").json()["trouble"] is None
