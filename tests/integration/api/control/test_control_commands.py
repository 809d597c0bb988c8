"""`holdfast` for who supervises a session: what it needs, words that wait, a run once more."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from holdfast.cli.needs import cell, trouble_line
from holdfast.cli.output import Styled
from holdfast.domain.clock import now_ms
from tests.support.command_line import run_here
from tests.support.servers.api_server import ApiServer, Caller


@pytest.fixture
def session(caller: Caller, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A fresh session's id; commands talk to the API of the test."""
    monkeypatch.setenv("HOLDFAST_URL", caller.api.url)
    monkeypatch.setenv("HOLDFAST_TOKEN", caller.token)
    monkeypatch.setenv("COLUMNS", "200")
    return str(caller.session(caller.project(tmp_path / "project")["id"])["id"])


def said(*arguments: str) -> str:
    """What a command that succeeds prints."""
    code, out, err = run_here(*arguments)
    assert code == 0, (out, err)
    return out


def answered(*arguments: str) -> Any:
    """The JSON of a command that succeeds."""
    return json.loads(said(*arguments, "--json"))


def test_a_failed_run_is_seen_in_lists_run_again_and_put_aside(
    caller: Caller, session: str, api: ApiServer
) -> None:
    run = caller.send(session, "one").json()["run"]["id"]
    api.double.finish(session, state="failed")
    assert "run_failed" in said("ls")
    assert session in said("ls", "--attention")
    shown = said("show", session)
    assert "needs you (run_failed" in shown
    assert f"holdfast retry {session}" in shown
    again = said("retry", session).strip()
    assert again not in ("", run)
    api.double.finish(session, state="failed")
    assert said("seen", session).strip() == "seen"
    assert session not in said("ls", "--attention")
    assert "last run failed" in said("show", session)


def test_messages_that_wait_are_sent_listed_changed_and_taken_back(
    caller: Caller, session: str
) -> None:
    run = caller.send(session, "one").json()["run"]["id"]
    assert "waits" in said("send", session, "two", "--queue", "--detach")
    assert said("send", session, "three", "--steer", "--detach").strip() == run
    assert "two" in said("waiting", session)
    assert "messages that wait: 2" in said("show", session)
    first, second = answered("waiting", session)
    said("waiting", session, first["id"], "--edit", "other words")
    said("waiting", session, second["id"], "--remove")
    assert [one["content"] for one in answered("waiting", session)] == ["other words"]
    for wrong in (("--queue", "--steer"), ("--interrupt", "--steer")):
        assert run_here("send", session, "no", *wrong)[0] == 2
    assert run_here("waiting", session, first["id"])[0] == 2
    assert run_here("send", session, "no", "--detach")[0] == 3


def test_a_pause_is_answered_from_the_command_line(caller: Caller, session: str) -> None:
    caller.send(session, "one")
    caller.http.post(f"/sessions/{session}/checkpoints")
    assert said("resume", session, "yes, but keep the logs").strip() == "running"
    assert [one["content"] for one in answered("waiting", session)] == ["yes, but keep the logs"]


def test_trouble_counts_down_and_a_need_has_its_colour() -> None:
    trouble = {"code": "http_429", "attempt": 3, "next_in_ms": 60_000, "message": "slow down"}
    line = trouble_line({**trouble, "at": now_ms() - 30_000})
    assert line.startswith("the provider does not answer (http_429): attempt 3 in ")
    assert 20 <= int(line.split(" in ")[1].split()[0]) <= 30
    failed = cell({"attention": {"kind": "run_failed"}, "trouble": None})
    assert isinstance(failed, Styled)
    assert (failed, failed.style) == ("run_failed", "bold red")
    assert cell({"attention": None, "trouble": trouble}) == "retrying"
    assert cell({"attention": None, "trouble": None}) == ""
