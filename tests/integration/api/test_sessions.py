"""Sessions and messages over HTTP, with the workflows doubled."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from holdfast.storage.sessions import sessions
from tests.support.servers.api_server import ApiServer, Caller
from tests.support.servers.cages_shown import cage_in_force

SESSION = {
    *("id", "project_id", "created_by", "state", "title", "source", "mode", "created_at"),
    *("updated_at", "ended_at", "end_reason", "forked_from", "parent_session_id"),
    *(
        "model_override",
        "bound_issue",
        "dsl_hash",
        "file_hash",
        "withheld",
        "dsl_stale",
        "current_head",
        "active_run",
    ),
    *("current_checkpoint", "attached", "allowed_actions", "message_count", "tool_call_count"),
    *("usage", "failure", "archived", "pinned", "preview", "last_active"),
}
USAGE = {
    *("input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens"),
    *("reasoning_tokens", "api_calls", "estimated_cost_usd", "actual_cost_usd"),
    *("cost_status", "cost_source"),
}
RUN = {
    *("id", "session_id", "created_at", "completed_at", "state", "operator_message"),
    *("primary_response", "subagent_invocations", "tool_calls", "error", "duration_ms"),
    *("tokens_in", "tokens_out"),
}
MESSAGE = {
    *("id", "session_id", "run_id", "seq", "role", "agent_path", "content", "created_at"),
    *("superseded", "superseded_by", "metadata"),
}


@pytest.fixture
def project(caller: Caller, tmp_path: Path) -> dict[str, Any]:
    return caller.project(tmp_path / "work")


@pytest.fixture
def session(caller: Caller, project: dict[str, Any]) -> dict[str, Any]:
    return caller.session(project["id"])


@pytest.mark.req("K-001", "K-005", "K-007", "K-013")
def test_a_new_session_is_idle_and_has_every_field(
    caller: Caller, session: dict[str, Any], project: dict[str, Any]
) -> None:
    assert set(session) >= SESSION
    assert set(session["usage"]) == USAGE
    assert session["state"] == "idle"
    assert session["project_id"] == project["id"]
    assert session["allowed_actions"][0] == "message"
    assert cage_in_force(session["cage"]) == "enabled"
    shown = caller.http.get(f"/sessions/{session['id']}").json()
    assert shown == session


@pytest.mark.req("K-001")
def test_a_session_belongs_to_one_project(
    caller: Caller, project: dict[str, Any], tmp_path: Path
) -> None:
    other = caller.project(tmp_path / "other")
    made = {one["id"]: caller.session(one["id"])["id"] for one in (project, other)}
    for project_id, session_id in made.items():
        assert caller.http.get(f"/sessions/{session_id}").json()["project_id"] == project_id
        listed = caller.http.get(f"/projects/{project_id}/sessions").json()["items"]
        assert [item["id"] for item in listed] == [session_id]


@pytest.mark.req("K-014", "K-028", "K-039")
def test_a_message_is_taken_and_its_run_shown(caller: Caller, session: dict[str, Any]) -> None:
    answer = caller.send(session["id"], "do it")
    assert answer.status_code == 202, answer.text
    body = answer.json()
    assert set(body["message"]) >= MESSAGE
    assert set(body["run"]) >= RUN
    assert body["session"]["state"] == "running"
    assert body["session"]["active_run"] == body["run"]["id"]
    assert body["message"]["content"] == "do it"
    run = caller.http.get(f"/sessions/{session['id']}/runs/{body['run']['id']}").json()
    assert run["operator_message"]["id"] == body["message"]["id"]
    runs = caller.http.get(f"/sessions/{session['id']}/runs").json()["items"]
    assert [item["id"] for item in runs] == [run["id"]]


@pytest.mark.req("K-035")
def test_a_message_is_refused_while_a_run_is_going_on(
    caller: Caller, session: dict[str, Any]
) -> None:
    caller.send(session["id"])
    answer = caller.send(session["id"])
    assert answer.status_code == 409
    assert answer.json()["error"]["code"] == "conflict"


@pytest.mark.req("K-015", "K-016", "K-017", "K-030", "K-121", "K-122", "K-145")
def test_over_the_limit_a_message_waits_until_it_is_resumed_or_discarded(
    api: ApiServer, caller: Caller, tmp_path: Path
) -> None:
    project = caller.project(tmp_path / "one", "project: one\nlimits: {running_sessions: 1}\n")
    first, second = (caller.session(project["id"])["id"] for _ in range(2))
    caller.send(first)
    queued = caller.send(second).json()
    assert (queued["session"]["state"], queued["queued"]) == ("queued", True)
    assert queued["session"]["reason"] == queued["reason"] == "concurrency_limit"
    assert queued["run"]["state"] == "pending"
    assert caller.send(second).status_code == 409
    assert caller.http.post(f"/sessions/{second}/resume").status_code == 409
    discarded = caller.http.delete(f"/sessions/{second}/queued-message")
    assert (discarded.status_code, discarded.json()["state"]) == (200, "idle")
    assert caller.http.delete(f"/sessions/{second}/queued-message").status_code == 409
    assert caller.send(second).json()["session"]["state"] == "queued"
    api.double.finish(first)
    resumed = caller.http.post(f"/sessions/{second}/resume")
    assert (resumed.status_code, resumed.json()["state"]) == (200, "running")
    shown = caller.http.get("/projects").json()["items"]
    assert [(item["running"], item["limit"]) for item in shown] == [(1, 1)]


@pytest.mark.req("K-111", "K-148")
def test_messages_come_back_in_order_and_page_by_page(
    api: ApiServer, caller: Caller, session: dict[str, Any]
) -> None:
    for number in range(7):
        assert caller.send(session["id"], f"message {number}").status_code == 202
        api.double.finish(session["id"])
    path = f"/sessions/{session['id']}/messages"
    everything = caller.http.get(path).json()
    assert [item["content"] for item in everything["items"]] == [f"message {n}" for n in range(7)]
    assert everything["next_cursor"] is None
    first = caller.http.get(path, params={"limit": 3}).json()
    rest = caller.http.get(path, params={"cursor": first["next_cursor"], "limit": 500}).json()
    assert first["items"] + rest["items"] == everything["items"]
    since = everything["items"][5]["id"]
    later = caller.http.get(path, params={"since": since}).json()["items"]
    assert [item["content"] for item in later] == ["message 6"]
    turns = caller.http.get(path, params={"format": "conversation"}).json()["items"]
    assert {item["role"] for item in turns} == {"user"}


def test_runs_come_page_by_page(api: ApiServer, caller: Caller, session: dict[str, Any]) -> None:
    made = []
    for _ in range(5):
        made.append(caller.send(session["id"]).json()["run"]["id"])
        api.double.finish(session["id"])
    path = f"/sessions/{session['id']}/runs"
    first = caller.http.get(path, params={"limit": 2}).json()
    rest = caller.http.get(path, params={"limit": 500, "cursor": first["next_cursor"]}).json()
    assert [item["id"] for item in first["items"] + rest["items"]] == made[::-1]


@pytest.mark.req("K-023", "K-011", "K-025")
def test_a_session_ends_once_and_takes_nothing_after(
    caller: Caller, session: dict[str, Any]
) -> None:
    path = f"/sessions/{session['id']}"
    assert caller.http.delete(path).status_code == 400
    ended = caller.http.delete(path, params={"confirm": "true"})
    assert (ended.status_code, ended.json()["state"]) == (200, "ended")
    assert caller.http.delete(path, params={"confirm": "true"}).status_code == 409
    gone = caller.send(session["id"])
    assert (gone.status_code, gone.json()["error"]["code"]) == (410, "gone")
    assert caller.http.post(f"{path}/reopen").json()["state"] == "idle"
    assert caller.send(session["id"]).status_code == 202


@pytest.mark.req("K-041")
def test_only_the_active_run_can_be_cancelled(caller: Caller, session: dict[str, Any]) -> None:
    run_id = caller.send(session["id"]).json()["run"]["id"]
    path = f"/sessions/{session['id']}/runs/{run_id}/cancel"
    assert caller.http.post(path).status_code == 202
    assert caller.http.post(path).status_code == 409
    unknown = caller.http.post(f"/sessions/{session['id']}/runs/nothing/cancel")
    assert unknown.status_code == 404


@pytest.mark.req("K-129", "K-130")
def test_the_model_can_be_overridden_and_the_override_cleared(
    caller: Caller, session: dict[str, Any]
) -> None:
    path = f"/sessions/{session['id']}"
    changed = caller.http.put(path, json={"model_override": "stub:two"})
    assert changed.json()["model_override"] == "stub:two"
    assert caller.http.put(path, json={"title": "named"}).json()["model_override"] == "stub:two"
    assert caller.http.put(path, json={"model_override": None}).json()["model_override"] is None
    for wrong in ("nobody:x", "stub", "stub:", 7):
        answer = caller.http.put(path, json={"model_override": wrong})
        assert answer.status_code == 400, wrong
    body = {"content": "x", "model_override": "nobody:x"}
    assert caller.http.post(f"{path}/messages", json=body).status_code == 400
    body["model_override"] = "stub:three"
    sent = caller.http.post(f"{path}/messages", json=body).json()
    assert sent["session"]["model_override"] == "stub:three"


def test_a_title_is_unique_per_operator_and_finds_its_session(
    api: ApiServer, caller: Caller, project: dict[str, Any], tmp_path: Path
) -> None:
    first = caller.session(project["id"], title="release notes")
    taken = caller.http.post(f"/projects/{project['id']}/sessions", json={"title": "release notes"})
    assert taken.status_code == 409
    assert caller.http.get("/sessions/release notes").json()["id"] == first["id"]
    assert caller.http.get(f"/sessions/{first['id'][:20]}").json()["id"] == first["id"]
    other = api.operator()
    theirs = other.session(other.project(tmp_path / "theirs")["id"], title="release notes")
    assert other.http.get("/sessions/release notes").json()["id"] == theirs["id"]
    other.close()


def test_lists_show_newest_activity_first_and_can_be_narrowed(
    api: ApiServer, caller: Caller, project: dict[str, Any]
) -> None:
    made = [caller.session(project["id"], source=f"s{n % 2}")["id"] for n in range(5)]
    caller.send(made[1], "the needle " + "x" * 100)
    api.double.finish(made[1])
    items = caller.http.get("/sessions").json()["items"]
    assert items[0]["id"] == made[1]
    assert len(items[0]["preview"]) == 63
    first = caller.http.get("/sessions", params={"limit": 2}).json()
    rest = caller.http.get("/sessions", params={"limit": 9, "cursor": first["next_cursor"]}).json()
    assert [item["id"] for item in first["items"] + rest["items"]] == [i["id"] for i in items]
    narrowed = caller.http.get("/sessions", params={"source": "s0"}).json()["items"]
    assert len(narrowed) == 3
    found = caller.http.get("/sessions", params={"q": "NEEDLE"}).json()["items"]
    assert [item["id"] for item in found] == [made[1]]
    assert caller.http.get("/sessions", params={"state": "running"}).json()["items"] == []
    assert caller.http.get("/sessions", params={"state": "nonsense"}).status_code == 400
    assert caller.http.get("/sessions", params={"cursor": "nonsense"}).status_code == 400
    assert caller.http.get("/sessions", params={"limit": 501}).status_code == 400


def test_an_archived_session_is_hidden_but_there(
    caller: Caller, project: dict[str, Any], session: dict[str, Any]
) -> None:
    path = f"/sessions/{session['id']}"
    assert caller.http.post(f"{path}/archive").json()["archived"] is True
    assert caller.http.get("/sessions").json()["items"] == []
    hidden = caller.http.get("/sessions", params={"archived": "true"}).json()["items"]
    assert [item["id"] for item in hidden] == [session["id"]]
    assert caller.http.post(f"{path}/unarchive").json()["archived"] is False
    caller.send(session["id"])
    assert caller.http.post(f"{path}/archive").status_code == 409


@pytest.mark.req("K-112", "K-143")
def test_a_session_goes_on_from_another_or_says_that_there_is_none(
    api: ApiServer, caller: Caller, project: dict[str, Any], session: dict[str, Any]
) -> None:
    caller.send(session["id"], "first")
    api.double.finish(session["id"])
    fork = caller.session(project["id"], resume_from=session["id"])
    assert fork["forked_from"] == session["id"]
    inherited = caller.http.get(f"/sessions/{fork['id']}/messages").json()["items"]
    assert [item["content"] for item in inherited] == ["first"]
    missing = caller.http.post(
        f"/projects/{project['id']}/sessions", json={"resume_from": "01JUNKNOWN"}
    )
    assert missing.status_code == 404
    assert missing.json()["error"]["message"] == "Source session not found."


@pytest.mark.req("K-128")
def test_a_restart_ends_the_old_session_and_makes_a_new_one(
    caller: Caller, project: dict[str, Any], session: dict[str, Any]
) -> None:
    caller.project(Path(project["path"]), "project: renewed\n")
    answer = caller.http.post(f"/sessions/{session['id']}/restart")
    assert answer.status_code == 201
    fresh = answer.json()
    assert fresh["id"] != session["id"]
    assert (fresh["dsl_hash"] != session["dsl_hash"], fresh["dsl_stale"]) == (True, False)
    assert caller.http.get(f"/sessions/{session['id']}").json()["state"] == "ended"


@pytest.mark.req("K-002")
def test_another_operators_session_does_not_exist(
    api: ApiServer, caller: Caller, session: dict[str, Any]
) -> None:
    run_id = caller.send(session["id"]).json()["run"]["id"]
    other = api.operator()
    path = f"/sessions/{session['id']}"
    calls = [
        ("GET", path),
        ("PUT", path),
        ("DELETE", f"{path}?confirm=true"),
        ("GET", f"{path}/messages"),
        ("POST", f"{path}/messages"),
        ("POST", f"{path}/resume"),
        ("DELETE", f"{path}/queued-message"),
        ("GET", f"{path}/runs"),
        ("GET", f"{path}/runs/{run_id}"),
        ("POST", f"{path}/runs/{run_id}/cancel"),
        ("POST", f"{path}/restart"),
        ("POST", f"{path}/archive"),
        ("POST", f"{path}/reopen"),
    ]
    for method, address in calls:
        body = {"content": "x"} if address.endswith("messages") and method == "POST" else None
        body = {} if method == "PUT" else body
        answer = other.http.request(method, address, json=body)
        assert answer.status_code == 404, (method, address, answer.text)
    assert other.http.get("/sessions").json()["items"] == []
    state = api.store.read(lambda db: sessions.get(db, session["id"]).state)
    assert state == "running"
    other.close()


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"content": ""},
        {"content": 7},
        {"content": None},
        {"content": "a\0b"},
        {"content": "x", "unknown": 1},
        {"content": "\ud800"},
        [],
        "text",
    ],
)
def test_a_message_that_is_none_is_refused_and_nothing_is_staged(
    caller: Caller, session: dict[str, Any], body: object
) -> None:
    import json

    answer = caller.http.post(
        f"/sessions/{session['id']}/messages",
        content=json.dumps(body).encode(),
        headers={"Content-Type": "application/json"},
    )
    assert answer.status_code == 400, answer.text
    assert answer.json()["error"]["code"] in ("validation_failed", "bad_request")
    assert caller.http.get(f"/sessions/{session['id']}/messages").json()["items"] == []


@pytest.mark.parametrize("query", ["cursor=nobody-gave-it-out", "limit=501", "state=asleep"])
def test_whatever_finds_a_request_invalid_says_so_in_details(caller: Caller, query: str) -> None:
    answer = caller.http.get(f"/sessions?{query}")
    error = answer.json()["error"]
    assert (answer.status_code, error["code"]) == (400, "validation_failed")
    assert [problem["message"] for problem in error["details"]["errors"]]
