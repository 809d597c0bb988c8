"""The command line against the running product: talking, looking, scripting."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx2
import pytest

from holdfast import Client
from holdfast.terminal.cages.finding import machine_cage
from tests.conftest import Account
from tests.stub.openai_stub import OpenAIStub
from tests.support.command_line import run_here
from tests.support.servers.product import Product

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    found = tmp_path / "work"
    found.mkdir()
    return found


@pytest.fixture
def holdfast(
    product: Product, operator: Account, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> Run:
    """Runs `holdfast …` as the test's operator in its folder: exit code, stdout, stderr."""
    for name, value in {**product.environment(), "HOLDFAST_TOKEN": operator.token}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(folder)
    return run_here


def script(*elements: dict[str, Any]) -> str:
    return json.dumps({"script": elements})


def test_a_first_send_streams_an_answer(holdfast: Run) -> None:
    code, out, err = holdfast("send", "good morning")
    assert (code, out) == (0, "You said: good morning\n"), err
    assert "session 01" in err


def test_tool_calls_are_shown_beside_the_answer(holdfast: Run, folder: Path) -> None:
    (folder / "notes.txt").write_text("remember me")
    call = {"name": "read_file", "arguments": {"path": "notes.txt"}}
    text = script({"calls": [call]}, {"say": "I have read it."})
    code, out, err = holdfast("send", text)
    assert code == 0, err
    assert out.endswith("I have read it.\n")
    assert "▸ read_file" in err


def test_the_answer_comes_as_json_for_scripts(holdfast: Run) -> None:
    code, out, _ = holdfast("new", "--title", "Scripted", "--json")
    session = json.loads(out)
    assert (code, session["state"], session["title"]) == (0, "idle", "Scripted")
    code, out, err = holdfast("send", "Scripted", "hello", "--json")
    answer = json.loads(out)
    assert code == 0, err
    assert answer["run"]["state"] == "done"
    assert answer["text"] == "You said: hello"
    assert answer["session"]["id"] == session["id"]


def test_a_busy_session_refuses_clearly_and_cancel_stops_it(
    holdfast: Run, stub: OpenAIStub
) -> None:
    session = holdfast("new")[1].strip()
    stub.play({"say": "wait", "hang_s": 50})
    assert holdfast("send", session, "take your time", "--detach")[0] == 0
    code, _, err = holdfast("send", session, "hurry")
    assert code == 3
    assert "running" in err
    assert holdfast("cancel", session)[0] == 0


def test_a_failed_run_has_an_exit_code_and_words(holdfast: Run, stub: OpenAIStub) -> None:
    stub.play({"error": 401})
    code, _, err = holdfast("send", "will it work?")
    assert code == 1
    assert "the run failed" in err


def test_sessions_are_found_shown_and_ended(holdfast: Run) -> None:
    session = holdfast("new", "--title", "To be ended")[1].strip()
    holdfast("send", session, "the word is xylophone")
    assert session in holdfast("ls")[1]
    assert "xylophone" in holdfast("show", session[:20])[1]
    assert "xylophone" in holdfast("search", "xylophone")[1]
    kinds = [
        json.loads(line)["type"]
        for line in holdfast("log", session, "--json")[1].split("\n")
        if line
    ]
    assert {"session.created", "run.created", "run.completed"} <= set(kinds)
    assert holdfast("end", session)[0] == 0
    code, _, err = holdfast("send", session, "still there?")
    assert code == 3
    assert "gone" in err


def test_attach_shows_history_and_sends_what_is_typed(
    holdfast: Run, product: Product, operator: Account
) -> None:
    session = holdfast("new")[1].strip()
    holdfast("send", session, "earlier")
    answer = product.command("attach", session, token=operator.token, input_text="typed here\n")
    assert answer.returncode == 0, answer.stderr
    assert "you: earlier" in answer.stdout
    assert "You said: typed here" in answer.stdout


def test_an_unknown_session_and_a_missing_server_are_told_apart(
    holdfast: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    code, _, err = holdfast("show", "nobody")
    assert code == 3
    assert "not_found" in err
    code, _, err = holdfast("show", "nobody", "--json")
    assert json.loads(err)["error"]["code"] == "not_found"
    monkeypatch.setenv("HOLDFAST_URL", "http://127.0.0.1:9")
    assert holdfast("ls")[0] == 4


def test_a_message_sent_while_the_api_restarts_is_taken_once(
    product: Product, operator: Account, session: dict[str, Any]
) -> None:
    old_pid = product.kill("api")
    with Client(product.url, operator.token) as client:
        accepted = client.send(session["id"], "through the storm")
        client.wait_for_run(session["id"], accepted["run"]["id"])
        said = [message["content"] for message in client.messages(session["id"])]
    assert said == ["through the storm", "You said: through the storm"]
    product.wait_restarted("api", old_pid)


@pytest.mark.req("K-002")
def test_operators_come_and_go_by_command(product: Product, holdfast: Run) -> None:
    name = f"carla-{uuid4().hex[:8]}"
    session = holdfast("new")[1].strip()
    added = json.loads(holdfast("operator", "add", name, "--json")[1])
    with product.api(added["token"]) as client:
        assert client.get("/sessions").json()["items"] == []
        assert client.get(f"/sessions/{session}").status_code == 404
        assert name in holdfast("operator", "ls")[1]
        assert holdfast("operator", "revoke", name)[0] == 0
        assert client.get("/sessions").status_code == 401
    code, _, err = holdfast("operator", "add", name)
    assert code == 3
    assert name in err


def test_the_token_command_prints_a_token_that_works(product: Product, holdfast: Run) -> None:
    token = holdfast("token")[1].strip()
    assert token == product.token()
    answer = httpx2.get(
        f"{product.url}/api/v1/sessions",
        headers={"Authorization": f"Bearer {token}"},
        trust_env=False,
    )
    assert answer.status_code == 200


def test_status_is_ready_and_names_the_parts(holdfast: Run) -> None:
    code, out, _ = holdfast("status", "--json")
    status = json.loads(out)
    assert code == 0
    assert status["ready"]
    assert all(status["running"].values())


def test_the_doctors_exit_code_is_the_stores_health(holdfast: Run) -> None:
    code, out, err = holdfast("doctor", "--json")
    answer = json.loads(out or err)
    assert answer["mode"] == "quick"
    assert code == (0 if answer["status"] == "ok" else 1)
    out = "".join(holdfast("doctor")[1:])
    assert f"\ncage kind: {machine_cage().kind}" in out


def test_a_session_is_forked_and_compared(holdfast: Run) -> None:
    source = holdfast("new")[1].strip()
    holdfast("send", source, "in common")
    fork = holdfast("fork", source)[1].strip()
    holdfast("send", fork, "only in the fork")
    lines = holdfast("diff", source, fork)[1].splitlines()
    assert lines[0].strip().startswith("alike")
    assert "+ you: only in the fork" in lines


def test_what_is_exported_can_be_imported_and_purged(holdfast: Run, tmp_path: Path) -> None:
    session = holdfast("new", "--title", "Travels")[1].strip()
    holdfast("send", session, "take me along")
    assert "take me along" in holdfast("export", session, "--format", "md")[1]
    file = tmp_path / "all.ndjson"
    assert holdfast("export", "--output", str(file))[0] == 0
    holdfast("end", session)
    assert holdfast("purge", session, "--yes")[0] == 0
    assert holdfast("show", session)[0] == 3
    code, _, err = holdfast("import", str(file))
    assert code == 0, err
    assert "take me along" in holdfast("search", "along")[1]


def test_an_issue_is_written_shown_and_bound(holdfast: Run) -> None:
    session = holdfast("new")[1].strip()
    issue = json.loads(holdfast("issue", "new", "Mend the roof", "--json")[1])
    assert "Mend the roof" in holdfast("issue", "ls")[1]
    assert "Mend the roof" in holdfast("issue", "show", issue["id"])[1]
    bound = json.loads(holdfast("issue", "bind", session, issue["id"], "--json")[1])
    assert bound["bound_issue"] == issue["id"]
    assert holdfast("issue", "unbind", session)[0] == 0


def test_a_running_session_is_paused_and_rolled_back(holdfast: Run, stub: OpenAIStub) -> None:
    session = holdfast("new")[1].strip()
    stub.play({"say": "slowly", "hang_s": 50})
    assert holdfast("send", session, "begin", "--detach")[0] == 0
    code, out, err = holdfast("checkpoint", session, "--reason", "let me think")
    assert code == 0, err
    assert "paused at" in out
    assert "let me think" in holdfast("checkpoints", session)[1]
    code, out, err = holdfast("rollback", session)
    assert code == 0, err
    assert "superseded" in out


@pytest.mark.parametrize(
    "command",
    [
        ("usage",),
        ("du",),
        ("watch", "--once"),
        ("project", "ls"),
        ("project", "validate"),
        ("issue", "ls"),
        ("reindex",),
        ("prune", "--dry-run"),
    ],
    ids=" ".join,
)
def test_looking_around_works_on_an_empty_shelf(holdfast: Run, command: tuple[str, ...]) -> None:
    code, out, err = holdfast(*command)
    assert code == 0, out + err


@pytest.mark.parametrize(
    ("command", "word", "key"),
    [
        ("du", "whole home", "home_bytes"),
        ("usage", "by model", "by_model"),
        ("retention", "archive: ", "archive_after_days"),
        ("status", "Home: ", "running"),
    ],
)
def test_what_is_shown_to_people_is_json_for_scripts(
    holdfast: Run, command: str, word: str, key: str
) -> None:
    assert holdfast("send", "something to count")[0] == 0
    code, out, err = holdfast(command)
    assert (code, word in out) == (0, True), out + err
    code, out, err = holdfast(command, "--json")
    assert (code, key in json.loads(out)) == (0, True), out + err
