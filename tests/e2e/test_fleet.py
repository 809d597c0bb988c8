"""A fleet by hand, with the commands of docker-compose.yml: Postgres, Temporal, workers."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from holdfast import Client, Refused
from holdfast.cli import credentials
from holdfast.settings.environment import Settings
from holdfast.supervisor import ports, process, temporal, terminal_host
from tests.support.servers.product import HOLDFAST
from tests.support.waiting import wait_for


class Fleet:
    """The parts of a fleet on one machine, each started by its own command."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.children: list[subprocess.Popen[bytes]] = []

    def run(self, *command: str) -> subprocess.Popen[bytes]:
        kept = {key: value for key, value in os.environ.items() if not key.startswith("HOLDFAST_")}
        with (self.settings.home / "fleet.log").open("ab") as log:
            child = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**kept, **self.settings.child_environment()},
                start_new_session=True,
            )
        self.children.append(child)
        return child

    def close(self) -> None:
        for child in reversed(self.children):
            child.send_signal(signal.SIGTERM)
        for child in self.children:
            child.wait(timeout=120.0)
        if (pid := terminal_host.living_pid(self.settings.terminal_socket)) is not None:
            process.stop(pid, process.birth(pid), grace_s=5.0)


@pytest.fixture
def fleet(postgres_url: str, tmp_path: Path) -> Iterator[Fleet]:
    settings = Settings(
        home=tmp_path / "home",
        bind=f"127.0.0.1:{ports.free_port()}",
        database_url=postgres_url,
        temporal_address=f"127.0.0.1:{ports.free_port()}",
    )
    settings.make_home()
    made = Fleet(settings)
    port = int(settings.temporal_address.rpartition(":")[2])
    made.run(*temporal.server_command(settings, port, f"127.0.0.1:{ports.free_port()}"))
    made.run(HOLDFAST, "api")
    yield made
    made.close()


@pytest.mark.slow
@pytest.mark.req("K-006")
def test_a_fleet_on_postgres_goes_on_when_a_worker_is_killed(fleet: Fleet, tmp_path: Path) -> None:
    first = fleet.run(HOLDFAST, "worker", "--with-terminal-host")
    wait_for(lambda: answers(fleet), "the fleet to be ready", timeout_s=120.0)
    fleet.run(HOLDFAST, "worker", "--with-terminal-host")
    _, token = credentials.add_operator(fleet.settings, "alice")
    folder = tmp_path / "project"
    folder.mkdir()
    with Client(fleet.settings.api_url, token) as client:
        project = client.load_project(str(folder))
        session = client.create(project["id"])
        texts = [
            frame.payload["text"]
            for frame in client.ask(session["id"], "run `echo 6*7`")
            if frame.type == "delta"
        ]
        assert "6*7" in "".join(texts)
        first.send_signal(signal.SIGKILL)
        assert first.wait(timeout=120.0) == -signal.SIGKILL
        accepted = wait_for(lambda: taken(client, session["id"]), "the message to be taken")
        assert accepted is not None
        run = client.wait_for_run(session["id"], accepted["run"]["id"], timeout_s=120.0)
        assert run["state"] == "done"


def taken(client: Client, session_id: str) -> dict[str, Any] | None:
    """Send a message; None while the other worker is still picking the session up."""
    try:
        answer: dict[str, Any] = client.send(session_id, "still there?")
    except Refused as error:
        if error.status not in {409, 503}:
            raise
        return None
    return answer


def answers(fleet: Fleet) -> bool:
    url = f"{fleet.settings.api_url}/readyz"
    try:
        return httpx2.get(url, timeout=5.0, trust_env=False).status_code == 200
    except httpx2.TransportError:
        return False
