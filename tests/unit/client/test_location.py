"""A client finds its server in the environment, or in the home of the product that is up."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from holdfast import AsyncClient, Client, Unreachable
from tests.support.command_line import run_here


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("HOLDFAST_URL", "HOLDFAST_TOKEN", "HOLDFAST_BIND"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOLDFAST_HOME", str(tmp_path))
    return tmp_path


def start(home: Path, **run: Any) -> None:
    """The files that `holdfast up` writes."""
    (home / "run.json").write_text(json.dumps({"pids": {}, **run}))
    (home / "token").write_text("stored\n")


@pytest.mark.parametrize("kind", [Client, AsyncClient])
def test_the_environment_goes_before_the_home(
    kind: type[Client] | type[AsyncClient], home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    start(home, api_url="http://127.0.0.1:1234")
    client = kind.from_environment(timeout_s=5.0)
    assert (client.url, client.token) == ("http://127.0.0.1:1234", "stored")
    assert client.http.timeout.read == 5.0
    monkeypatch.setenv("HOLDFAST_URL", "https://elsewhere.example/")
    monkeypatch.setenv("HOLDFAST_TOKEN", "given")
    client = kind.from_environment()
    assert (client.url, client.token) == ("https://elsewhere.example", "given")


def test_a_home_that_was_never_started_is_named(home: Path) -> None:
    with pytest.raises(Unreachable, match=f"Holdfast has not been started in {home}"):
        Client.from_environment()


@pytest.mark.parametrize("content", ["", "[]", '{"api_url": null}', '{"api_url": 3}'])
def test_a_run_file_without_an_address_is_no_server(home: Path, content: str) -> None:
    start(home)
    (home / "run.json").write_text(content)
    with pytest.raises(Unreachable, match="holdfast up"):
        Client.from_environment()


def test_a_token_alone_is_not_enough(home: Path) -> None:
    start(home, api_url="http://127.0.0.1:1234")
    (home / "token").unlink()
    with pytest.raises(Unreachable, match="HOLDFAST_TOKEN"):
        Client.from_environment()


def test_the_command_line_says_the_same_and_has_its_exit_code(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code, _, err = run_here("ls")
    assert code == 4
    assert f"holdfast: Holdfast has not been started in {home}" in err
    monkeypatch.setenv("HOLDFAST_URL", "http://127.0.0.1:9")
    monkeypatch.setenv("HOLDFAST_TOKEN", "given")
    code, _, err = run_here("ls", "--json")
    assert code == 4
    assert json.loads(err)["error"]["code"] == "unreachable"


def test_the_command_line_falls_back_to_the_bind_address(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOLDFAST_BIND", "127.0.0.1:9")
    monkeypatch.setenv("HOLDFAST_TOKEN", "given")
    assert "no answer from http://127.0.0.1:9" in run_here("ls")[2]
