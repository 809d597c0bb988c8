"""Pause, look, edit, go on, or go back, as an operator does it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.support.waiting import wait_for

Wait = Callable[..., dict[str, Any]]


def script(*elements: dict[str, Any]) -> str:
    """A message that says what the model does."""
    return f"```script\n{json.dumps(list(elements))}\n```"


def shell(command: str) -> dict[str, Any]:
    return {"call": "shell", "arguments": {"command": command}}


def stopped_or_gone(pid: int) -> bool:
    """Whether a process is stopped; one that is frozen by its cgroup sleeps uninterruptibly."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8")
    except OSError:
        return True
    return text.rpartition(")")[2].split()[0] in "TtD"


def post(client: httpx2.Client, path: str, status: int, **body: Any) -> dict[str, Any]:
    answer = client.post(path, json=body)
    assert answer.status_code == status, answer.text
    found: dict[str, Any] = answer.json()
    return found


def contents(client: httpx2.Client, session_id: str) -> list[str]:
    found = client.get(f"/sessions/{session_id}/messages", params={"limit": 500}).json()
    return [item["content"] for item in found["items"]]


@pytest.fixture
def bare_project(make_project: Callable[..., dict[str, Any]]) -> dict[str, Any]:
    """Without a cage, so that the number of a process is the same inside and out."""
    return make_project("version: 1\nproject: bare\nprimary: {cage: disabled}\n")


@pytest.mark.req("K-055", "K-031", "K-064", "K-123", "K-147", "F-026")
def test_a_pause_stops_the_processes_and_a_resume_lets_them_go_on(
    client: httpx2.Client, bare_project: dict[str, Any], in_state: Wait
) -> None:
    session = client.post(f"/projects/{bare_project['id']}/sessions", json={}).json()
    folder = Path(bare_project["path"])
    path = f"/sessions/{session['id']}"
    command = "echo $$ > pid; while [ ! -e go ]; do sleep 0.05; done; echo over > end"
    post(client, f"{path}/messages", 202, content=script(shell(command), {"say": "slept"}))
    wait_for(lambda: (folder / "pid").exists() and (folder / "pid").read_text(), "it to begin")
    made = post(client, f"{path}/checkpoints", 201, reason="stop there")
    assert (made["created_by"], made["reason"]) == ("operator", "stop there")
    assert client.get(path).json()["state"] == "paused"
    (pending,) = made["pending_tool_calls"]
    assert pending["tool_name"] == "shell"
    pid = int((folder / "pid").read_text())
    wait_for(lambda: stopped_or_gone(pid), "the shell to be stopped")
    (folder / "go").touch()
    assert not (folder / "end").exists()
    resumed = post(client, f"{path}/checkpoints/{made['id']}/resume", 200)
    assert resumed["state"] == "running"
    in_state(session["id"], "idle")
    assert (folder / "end").read_text() == "over\n"
    assert contents(client, session["id"])[-1] == "slept"
    assert client.post(f"{path}/checkpoints/{made['id']}/resume").status_code == 409


@pytest.mark.req("K-056", "K-062", "K-063", "K-065", "K-147")
def test_the_model_pauses_and_reads_of_an_edited_prompt(
    client: httpx2.Client, session: dict[str, Any], in_state: Wait, stub: Any
) -> None:
    path = f"/sessions/{session['id']}"
    ask = {"call": "checkpoint", "arguments": {"reason": "is this right?"}}
    post(client, f"{path}/messages", 202, content=script(ask, {"say": "went on"}))
    paused = in_state(session["id"], "paused")
    made = client.get(f"{path}/checkpoints/{paused['current_checkpoint']}").json()
    assert (made["created_by"], made["reason"]) == ("model", "is this right?")
    prompt = f"{path}/checkpoints/{made['id']}/prompts/primary"
    edited = client.put(prompt, json={"content": "You are careful."}).json()
    assert edited["old_hash"] == made["prompts_in_effect"][0]["content_hash"]
    assert client.get(prompt).json()["content"] == "You are careful."
    post(client, f"{path}/checkpoints/{made['id']}/resume", 200)
    in_state(session["id"], "idle")
    notice = (
        "System prompts were updated at this checkpoint. "
        f"Previous prompt hash: {edited['old_hash']}, new prompt hash: {edited['new_hash']}."
    )
    assert notice in contents(client, session["id"])
    sent = json.dumps(stub.calls[-1].body)
    assert "You are careful." in sent
    assert notice in sent
    assert client.put(prompt, json={"content": "late"}).status_code == 409


@pytest.mark.req("K-142")
def test_an_edit_that_the_provider_refuses_fails_the_run_and_says_so(
    client: httpx2.Client, session: dict[str, Any], in_state: Wait
) -> None:
    path = f"/sessions/{session['id']}"
    ask = {"call": "checkpoint", "arguments": {"reason": "edit me"}}
    post(client, f"{path}/messages", 202, content=script(ask, {"error": 400}))
    made = in_state(session["id"], "paused")["current_checkpoint"]
    point = f"{path}/checkpoints/{made}"
    assert client.put(f"{point}/prompts/primary", json={"content": "Odd."}).status_code == 200
    post(client, f"{point}/resume", 200)
    in_state(session["id"], "idle")
    (run,) = client.get(f"{path}/runs").json()["items"]
    assert run["state"] == "failed"
    wanted = "Prompt edit caused an error. Review the edited prompt."
    assert run["error"]["message"] == wanted


@pytest.mark.req("K-066", "K-067", "K-147")
def test_a_rollback_brings_back_the_conversation_and_the_files(
    client: httpx2.Client, session: dict[str, Any], project: dict[str, Any], in_state: Wait
) -> None:
    folder = Path(project["path"])
    (folder / "kept.txt").write_text("before")
    path = f"/sessions/{session['id']}"
    ask = {"call": "checkpoint", "arguments": {"reason": "look"}}
    change = shell("echo after > kept.txt; echo new > made.txt")
    post(client, f"{path}/messages", 202, content=script(ask, change, {"say": "changed"}))
    made = in_state(session["id"], "paused")["current_checkpoint"]
    point = f"{path}/checkpoints/{made}"
    wait_for(lambda: client.get(point).json()["can_restore_files"], "the files to be saved")
    post(client, f"{point}/resume", 200)
    in_state(session["id"], "idle")
    assert (folder / "kept.txt").read_text() == "after\n"
    done = post(client, f"{point}/rollback", 200, restore_files=True)
    assert done["session"]["state"] == "idle"
    assert done["messages_superseded"] >= 3
    assert done["files"]["restored"] == ["kept.txt"]
    assert done["files"]["deleted"] == ["made.txt"]
    assert any("shell commands" in line for line in done["files"]["not_undone"])
    assert (folder / "kept.txt").read_text() == "before"
    assert "changed" not in contents(client, session["id"])
    undone = post(client, f"{point}/rollback", 200, undo_restore=True)
    assert undone["files"]["restored"] == ["kept.txt", "made.txt"]
    assert (folder / "made.txt").read_text() == "new\n"
    post(client, f"{path}/messages", 202, content="again")
    in_state(session["id"], "idle")
    assert contents(client, session["id"])[-1] == "You said: again"


@pytest.mark.req("K-066")
def test_a_paused_run_is_rolled_back_and_its_processes_are_gone(
    client: httpx2.Client, bare_project: dict[str, Any], in_state: Wait
) -> None:
    session = client.post(f"/projects/{bare_project['id']}/sessions", json={}).json()
    folder = Path(bare_project["path"])
    path = f"/sessions/{session['id']}"
    command = "echo $$ > pid; sleep 60"
    post(client, f"{path}/messages", 202, content=script(shell(command), {"say": "no"}))
    wait_for(lambda: (folder / "pid").exists() and (folder / "pid").read_text(), "it to begin")
    made = post(client, f"{path}/checkpoints", 201)
    post(client, f"{path}/checkpoints/{made['id']}/rollback", 200)
    assert in_state(session["id"], "idle")["current_checkpoint"] is None
    pid = int((folder / "pid").read_text())
    wait_for(lambda: not Path(f"/proc/{pid}").exists(), "the shell to be gone")
    runs = client.get(f"{path}/runs").json()["items"]
    assert [run["state"] for run in runs] == ["cancelled"]


@pytest.mark.req("K-112", "K-148", "F-027")
def test_a_fork_goes_on_by_itself_and_can_be_compared(
    client: httpx2.Client,
    session: dict[str, Any],
    new_session: Callable[..., dict[str, Any]],
    run_message: Wait,
) -> None:
    run_message(session["id"], "shared")
    fork = new_session(resume_from=session["id"])
    assert (fork["state"], fork["forked_from"]) == ("idle", session["id"])
    run_message(session["id"], "mine")
    run_message(fork["id"], "other")
    assert contents(client, fork["id"]) == [
        *("shared", "You said: shared"),
        *("other", "You said: other"),
    ]
    found = client.get(f"/sessions/{session['id']}/compare/{fork['id']}").json()
    first = client.get(f"/sessions/{session['id']}/heads").json()["items"][-1]
    assert found["common"]["head_id"] == first["id"]
    assert found["b"]["messages"][0]["content"] == "other"
    state = client.get(f"/sessions/{session['id']}/heads/{first['id']}/state").json()["state"]
    assert len(state["collections"]["messages"]) == 2
    missing = client.post(
        f"/projects/{session['project_id']}/sessions", json={"resume_from": "nothing"}
    )
    assert missing.status_code == 404
    assert missing.json()["error"]["message"] == "Source session not found."


@pytest.mark.req("K-019", "K-025")
def test_what_cannot_be_paused_or_rolled_back_is_refused(
    client: httpx2.Client, session: dict[str, Any]
) -> None:
    path = f"/sessions/{session['id']}"
    assert client.post(f"{path}/checkpoints").status_code == 409
    assert client.get(f"{path}/checkpoints/nothing").status_code == 404
    assert client.post(f"{path}/checkpoints/nothing/rollback").status_code == 404
    client.delete(path, params={"confirm": "true"})
    assert client.post(f"{path}/checkpoints").status_code == 409


@pytest.mark.req("F-037")
def test_the_store_agrees_with_itself(
    client: httpx2.Client, session: dict[str, Any], run_message: Wait
) -> None:
    run_message(session["id"], "hello")
    for mode in ("quick", "deep"):
        report = client.post("/admin/consistency", params={"mode": mode}).json()
        own = [issue for issue in report["issues"] if issue["session_id"] == session["id"]]
        assert own == []
        assert report["mode"] == mode
    assert client.post("/admin/consistency", params={"mode": "odd"}).status_code == 400
