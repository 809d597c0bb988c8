"""Back to any message, with its files; what a session changed, and when."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.conftest import Account
from tests.support.command_line import run_here
from tests.support.servers.product import Product

Wait = Callable[..., dict[str, Any]]


def script(*elements: dict[str, Any]) -> str:
    """A message that says what the model does."""
    return f"```script\n{json.dumps(list(elements))}\n```"


def call(name: str, **arguments: Any) -> dict[str, Any]:
    return {"call": name, "arguments": arguments}


@pytest.fixture
def session(client: httpx2.Client, make_project: Callable[..., dict[str, Any]]) -> dict[str, Any]:
    project = make_project("version: 1\nproject: back\nprimary: {cage: disabled}\n")
    folder = Path(project["path"])
    (folder / "kept.txt").write_text("as it was\n")
    made: dict[str, Any] = client.post(f"/projects/{project['id']}/sessions", json={}).json()
    return {**made, "folder": folder}


def run(client: httpx2.Client, in_state: Wait, session_id: str, *elements: dict[str, Any]) -> str:
    """A whole run; the id of its message."""
    answer = client.post(f"/sessions/{session_id}/messages", json={"content": script(*elements)})
    assert answer.status_code == 202, answer.text
    in_state(session_id, "idle")
    return str(answer.json()["message"]["id"])


def two_runs(client: httpx2.Client, in_state: Wait, session: dict[str, Any]) -> str:
    """A run that writes a file and one that changes it, and others; the second's message."""
    write = call("write_file", path="new.txt", content="one\ntwo\n")
    run(client, in_state, session["id"], write, {"say": "written"})
    edit = call("edit_file", path="new.txt", old_string="two", new_string="three")
    shell = call("shell", command="echo changed > kept.txt; printf '\\0\\1' > binary")
    return run(client, in_state, session["id"], edit, shell, {"say": "changed"})


def test_a_session_tells_what_it_changed_and_when(
    client: httpx2.Client, session: dict[str, Any], in_state: Wait
) -> None:
    path = f"/sessions/{session['id']}"
    two_runs(client, in_state, session)
    listed = client.get(f"{path}/changes").json()
    assert {one["path"]: one["status"] for one in listed["items"]} == {
        "binary": "added",
        "kept.txt": "modified",
        "new.txt": "added",
    }
    assert [one["path"] for one in listed["items"] if one["binary"]] == ["binary"]
    last = client.get(f"{path}/changes", params={"since": "run"}).json()["items"]
    assert {one["path"]: (one["additions"], one["deletions"]) for one in last} == {
        "binary": (0, 0),
        "kept.txt": (1, 1),
        "new.txt": (1, 1),
    }
    diff = client.get(f"{path}/changes/diff", params={"since": "run", "path": "new.txt"}).text
    assert "-two\n+three\n" in diff
    assert "kept.txt" not in diff
    messages = client.get(f"{path}/messages", params={"limit": 100}).json()["items"]
    diffs = [one["metadata"]["diff"] for one in messages if "diff" in one["metadata"]]
    assert diffs[0].startswith("--- /dev/null\n+++ b/new.txt\n")
    assert "-two\n+three\n" in diffs[1]

    spans = client.get(f"{path}/timeline").json()["items"]
    kinds = [span["kind"] for span in spans]
    assert (kinds.count("run"), kinds.count("model"), kinds.count("tool")) == (2, 5, 3)
    runs = {span["id"] for span in spans if span["kind"] == "run"}
    assert {span["parent"] for span in spans if span["kind"] != "run"} == runs
    assert all(span["start"] <= span["end"] for span in spans)


def test_a_session_goes_back_to_a_message_with_its_files_and_says_it_otherwise(
    client: httpx2.Client, session: dict[str, Any], in_state: Wait
) -> None:
    session_id, folder = session["id"], session["folder"]
    path = f"/sessions/{session_id}"
    second = two_runs(client, in_state, session)
    body = {"message_id": second, "restore_files": True}
    back = client.post(f"{path}/rollback", json=body)
    assert back.status_code == 200, back.text
    assert back.json()["session"]["state"] == "idle"
    assert sorted(back.json()["files"]["restored"]) == ["kept.txt", "new.txt"]
    assert back.json()["files"]["deleted"] == ["binary"]
    assert (folder / "kept.txt").read_text() == "as it was\n"
    assert (folder / "new.txt").read_text() == "one\ntwo\n"
    assert not (folder / "binary").exists()
    assert client.post(f"{path}/rollback", json=body).status_code == 409

    first = client.get(f"{path}/messages").json()["items"][0]["id"]
    again = client.post(
        f"{path}/messages/{first}/resend", json={"content": script({"say": "otherwise"})}
    )
    assert again.status_code == 202, again.text
    in_state(session_id, "idle")
    left = client.get(f"{path}/messages", params={"limit": 100}).json()["items"]
    assert [one["content"] for one in left if one["role"] == "primary"] == ["otherwise"]

    fork = client.post(
        f"/projects/{session['project_id']}/sessions",
        json={"resume_from": session_id, "message_id": left[0]["id"]},
    )
    assert fork.status_code == 201, fork.text
    assert client.get(f"/sessions/{fork.json()['id']}/messages").json()["items"] == []


def test_bad_points_are_refused_in_words(client: httpx2.Client, session: dict[str, Any]) -> None:
    path = f"/sessions/{session['id']}"
    assert client.get(f"{path}/changes").json()["note"].startswith("no run has used a tool")
    assert client.get(f"{path}/changes", params={"since": "never"}).status_code == 400
    missing = {"since": "checkpoint:01ABC"}
    assert client.get(f"{path}/changes", params=missing).status_code == 404
    assert client.post(f"{path}/rollback", json={"message_id": "nothing"}).status_code == 404
    assert client.post(f"{path}/messages/nothing/resend").status_code == 404
    made = client.post(
        f"/projects/{session['project_id']}/sessions",
        json={"resume_from": session["id"], "message_id": "nothing"},
    )
    assert made.status_code == 404


def test_the_command_line_goes_back_to_the_last_message(
    client: httpx2.Client,
    session: dict[str, Any],
    in_state: Wait,
    product: Product,
    operator: Account,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, value in {**product.environment(), "HOLDFAST_TOKEN": operator.token}.items():
        monkeypatch.setenv(name, value)

    def holdfast(*words: str) -> str:
        code, out, err = run_here(*words)
        assert code == 0, err
        return out

    session_id = session["id"]
    run(client, in_state, session_id, {"say": "kept"})
    write = call("write_file", path="new.txt", content="one\n")
    run(client, in_state, session_id, write, {"say": "not kept"})
    assert "added" in holdfast("changes", session_id)
    assert "+one" in holdfast("changes", session_id, "--diff")
    assert "write_file new.txt" in holdfast("timeline", session_id)
    told = holdfast("rollback", session_id, "--message", "last", "--restore-files")
    assert told == "4 messages superseded, 1 files deleted\n"
    forked = holdfast("fork", session_id, "--message", "last").strip()
    assert client.get(f"/sessions/{forked}/messages").json()["items"] == []
    assert "sent again as" in holdfast("resend", session_id, "last")
    in_state(session_id, "idle")
    found = client.get(f"/sessions/{session_id}/messages").json()["items"]
    assert [one["content"] for one in found if one["role"] == "primary"] == ["kept"]
