"""Approvals over HTTP: shown, answered once, remembered, and nobody else's."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from holdfast.domain.ids import new_id
from holdfast.storage.approvals import approvals
from holdfast.storage.database.tables_approvals import Approval
from tests.support.servers.api_server import ApiServer, Caller

FIELDS = {
    "id", "session_id", "run_id", "tool_call_id", "agent_path", "source", "tool", "kind", "title",
    "input", "diff", "paths", "command", "cwd", "asked_at", "expires_at", "state", "decided_by",
    "decided_at", "note", "rule_id",
}  # fmt: skip


@pytest.fixture
def session(caller: Caller, tmp_path: Path) -> dict[str, Any]:
    found = caller.session(caller.project(tmp_path / "folder")["id"])
    assert caller.send(found["id"]).status_code == 202
    shown: dict[str, Any] = caller.http.get(f"/sessions/{found['id']}").json()
    return shown


def ask(api: ApiServer, session: dict[str, Any], command: str = "git push") -> str:
    """A call of the session that waits for a word."""
    approval = Approval(
        id=new_id(),
        session_id=session["id"],
        run_id=session["active_run"],
        tool_call_id=new_id(),
        tool="shell",
        kind="execute",
        title=f"shell: {command}",
        input={"command": command},
        command=command,
        cwd=session["working_directory"],
    )
    return api.store.write(lambda db: approvals.ask(db, approval)).id


def test_what_waits_is_listed_with_all_that_an_answer_needs(
    api: ApiServer, caller: Caller, session: dict[str, Any]
) -> None:
    ids = [ask(api, session, f"git push {number}") for number in range(3)]
    shown = caller.http.get(f"/approvals/{ids[0]}").json()
    assert set(shown) >= FIELDS
    assert (shown["state"], shown["source"], shown["command"]) == (
        "pending",
        "native",
        "git push 0",
    )
    page = caller.http.get("/approvals?limit=2").json()
    assert [one["id"] for one in page["items"]] == ids[:2]
    rest = caller.http.get(f"/approvals?limit=2&cursor={page['next_cursor']}").json()
    assert [one["id"] for one in rest["items"]] == ids[2:]
    of_it = caller.http.get(f"/approvals?session_id={session['id']}").json()
    assert len(of_it["items"]) == 3
    assert caller.http.get("/approvals?session_id=nosuch").status_code == 404
    assert caller.http.get("/approvals?state=nosuch").status_code == 400


def test_the_first_answer_wins_and_the_same_again_is_fine(
    api: ApiServer, caller: Caller, session: dict[str, Any]
) -> None:
    path = f"/approvals/{ask(api, session)}"
    denied = caller.http.post(path, json={"decision": "deny", "note": "not today"})
    assert (denied.status_code, denied.json()["state"]) == (200, "denied")
    assert (denied.json()["note"], denied.json()["rule_id"]) == ("not today", None)
    assert caller.http.post(path, json={"decision": "deny"}).status_code == 200
    other = caller.http.post(path, json={"decision": "allow"})
    assert other.status_code == 409
    details = other.json()["error"]["details"]
    assert (details["state"], details["decided_by"]) == ("denied", denied.json()["decided_by"])
    assert details["decided_by"] in other.json()["error"]["message"]
    assert caller.http.get("/approvals").json()["items"] == []
    assert len(caller.http.get("/approvals?state=all").json()["items"]) == 1


def test_of_two_answers_at_once_one_is_stored(
    api: ApiServer, caller: Caller, session: dict[str, Any]
) -> None:
    key = ask(api, session)
    assert api.store.write(lambda db: approvals.decide(db, key, "allowed", decided_by="one"))
    assert not api.store.write(lambda db: approvals.decide(db, key, "denied", decided_by="two"))
    shown = caller.http.get(f"/approvals/{key}").json()
    assert (shown["state"], shown["decided_by"]) == ("allowed", "one")
    events = caller.http.get(f"/sessions/{session['id']}/events").json()["items"]
    assert [one["type"] for one in events].count("approval.decided") == 1


def test_after_the_end_of_the_run_it_is_withdrawn(
    api: ApiServer, caller: Caller, session: dict[str, Any]
) -> None:
    path = f"/approvals/{ask(api, session)}"
    run = f"/sessions/{session['id']}/runs/{session['active_run']}/cancel"
    assert caller.http.post(run).status_code in (200, 202)
    for decision in ("allow", "deny"):
        answer = caller.http.post(path, json={"decision": decision})
        assert (answer.status_code, answer.json()["error"]["details"]["state"]) == (
            409,
            "withdrawn",
        )


def test_an_answer_is_remembered_listed_and_forgotten(
    api: ApiServer, caller: Caller, session: dict[str, Any]
) -> None:
    one, two = ask(api, session), ask(api, session, "rm *.o > x")
    wider = {"decision": "allow", "remember": "project", "pattern": "git *"}
    assert caller.http.post(f"/approvals/{one}", json=wider).json()["rule_id"] == one
    exact = {"decision": "deny", "remember": "session"}
    assert caller.http.post(f"/approvals/{two}", json=exact).json()["rule_id"] == two
    project = f"/permissions?project_id={session['project_id']}"
    own = f"/permissions?session_id={session['id']}"
    (rule,) = caller.http.get(project).json()["items"]
    assert (rule["scope"], rule["tool"], rule["pattern"]) == ("project", "shell", "git *")
    (rule,) = caller.http.get(own).json()["items"]
    assert (rule["effect"], rule["pattern"]) == ("deny", r"rm \*.o > x")
    assert caller.http.delete(f"{project}&id={two}").status_code == 404
    gone = caller.http.delete(f"{project}&id={one}")
    assert [one["id"] for one in gone.json()["items"]] == [one]
    assert caller.http.get(project).json()["items"] == []
    assert len(caller.http.delete(own).json()["items"]) == 1
    kinds = [
        one["type"] for one in caller.http.get(f"/sessions/{session['id']}/events").json()["items"]
    ]
    assert kinds.count("permission.remembered") == kinds.count("permission.forgotten") == 2


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"decision": "maybe"},
        {"decision": "allow", "pattern": "git *"},
        {"decision": "allow", "remember": "always"},
        {"decision": "allow", "remember": "session", "pattern": "x" * 1001},
        {"decision": "deny", "note": "x" * 4001},
        {"decision": "deny", "who": "me"},
    ],
)
def test_an_answer_that_does_not_fit_is_refused(
    api: ApiServer, caller: Caller, session: dict[str, Any], body: dict[str, Any]
) -> None:
    path = f"/approvals/{ask(api, session)}"
    assert caller.http.post(path, json=body).status_code == 400
    assert caller.http.get(path).json()["state"] == "pending"


def test_another_operator_sees_none_of_it(
    api: ApiServer, caller: Caller, session: dict[str, Any]
) -> None:
    path = f"/approvals/{ask(api, session)}"
    other = api.operator()
    assert other.http.get(path).status_code == 404
    assert other.http.post(path, json={"decision": "allow"}).status_code == 404
    assert other.http.get("/approvals?state=all").json()["items"] == []
    for query in (f"session_id={session['id']}", f"project_id={session['project_id']}"):
        assert other.http.get(f"/permissions?{query}").status_code == 404
        assert other.http.delete(f"/permissions?{query}").status_code == 404
    both = f"session_id={session['id']}&project_id={session['project_id']}"
    assert caller.http.get(f"/permissions?{both}").status_code == 400
    assert caller.http.get("/permissions").status_code == 400
    assert caller.http.get(path).json()["state"] == "pending"
    other.close()


def test_the_guard_against_loops_is_a_field_of_the_session(
    caller: Caller, session: dict[str, Any]
) -> None:
    path = f"/sessions/{session['id']}"
    assert session["stuck_guard"] is True
    assert caller.http.put(path, json={"stuck_guard": False}).json()["stuck_guard"] is False
    fork = caller.session(session["project_id"], resume_from=session["id"])
    assert fork["stuck_guard"] is False
    assert caller.http.put(path, json={"stuck_guard": None}).json()["stuck_guard"] is True
    made = caller.session(session["project_id"], stuck_guard=False)
    assert made["stuck_guard"] is False
