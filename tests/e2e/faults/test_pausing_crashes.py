"""SIGKILL of the worker in the middle of a pause, a resume and a rollback: done or not done."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx2
import pytest

from tests.support.servers.product import Product
from tests.support.waiting import wait_for

pytestmark = pytest.mark.slow
# From before the first step to after the last one, as measured on a quiet machine.
DELAYS_MS = (0, 5, 10, 20, 40, 80, 160)
COMMAND = "echo $$ > pid; while [ ! -e go ]; do sleep 0.05; done; echo x >> ends"


class Crash:
    """A session whose worker dies while it is asked for something."""

    def __init__(
        self, product: Product, client: httpx2.Client, session: dict[str, Any], folder: Path
    ) -> None:
        self.product = product
        self.client = client
        self.path = f"/sessions/{session['id']}"
        self.folder = folder

    def begin(self) -> None:
        """A run that waits in a shell."""
        elements = [{"call": "shell", "arguments": {"command": COMMAND}}, {"say": "over"}]
        content = f"```script\n{json.dumps(elements)}\n```"
        assert self.client.post(f"{self.path}/messages", json={"content": content}).is_success
        pid = self.folder / "pid"
        wait_for(lambda: pid.exists() and pid.read_text(), "the command to begin")

    def ask(self, path: str, *, delay_ms: int, **body: Any) -> dict[str, Any]:
        """Ask, kill the worker meanwhile, and ask the same again until it is answered."""
        key = {"Idempotency-Key": uuid4().hex}

        def once() -> httpx2.Response | None:
            try:
                return self.client.post(f"{self.path}/{path}", json=body, headers=key)
            except httpx2.TransportError:
                return None

        first = threading.Thread(target=once)
        first.start()
        time.sleep(delay_ms / 1000)
        old = self.product.kill("worker")
        first.join()
        self.product.wait_restarted("worker", old)
        assert self.state() in {"running", "paused", "idle"}

        def answered() -> httpx2.Response | None:
            answer = once()
            return answer if answer is not None and answer.status_code < 500 else None

        answer = wait_for(answered, f"{path} to be answered", timeout_s=120.0)
        assert answer is not None
        assert answer.is_success, answer.text
        found: dict[str, Any] = answer.json()
        return found

    def state(self) -> str:
        return str(self.client.get(self.path).json()["state"])

    def wait(self, state: str) -> None:
        wait_for(lambda: self.state() == state, f"the session to be {state}", timeout_s=120.0)


@pytest.fixture
def crash(
    product: Product, client: httpx2.Client, session: dict[str, Any], project: dict[str, Any]
) -> Crash:
    return Crash(product, client, session, Path(project["path"]))


@pytest.mark.req("K-055", "K-140")
@pytest.mark.parametrize("delay_ms", DELAYS_MS)
def test_a_pause_is_made_once_and_the_run_goes_on_after_it(crash: Crash, delay_ms: int) -> None:
    crash.begin()
    made = crash.ask("checkpoints", delay_ms=delay_ms)
    assert crash.state() == "paused"
    listed = crash.client.get(f"{crash.path}/checkpoints").json()["items"]
    assert [one["id"] for one in listed] == [made["id"]]
    assert crash.client.post(f"{crash.path}/checkpoints/{made['id']}/resume").is_success
    (crash.folder / "go").touch()
    crash.wait("idle")
    assert (crash.folder / "ends").read_text() == "x\n"


@pytest.mark.req("K-064", "K-140")
@pytest.mark.parametrize("delay_ms", DELAYS_MS)
def test_a_resume_is_made_once(crash: Crash, delay_ms: int) -> None:
    crash.begin()
    made = crash.client.post(f"{crash.path}/checkpoints").json()
    crash.ask(f"checkpoints/{made['id']}/resume", delay_ms=delay_ms)
    (crash.folder / "go").touch()
    crash.wait("idle")
    assert (crash.folder / "ends").read_text() == "x\n"
    events = crash.client.get(f"{crash.path}/events", params={"limit": 500}).json()["items"]
    assert [event["type"] for event in events].count("checkpoint.resumed") == 1


@pytest.mark.req("K-066", "K-140")
@pytest.mark.parametrize("delay_ms", DELAYS_MS)
def test_a_rollback_is_made_once_with_its_files(
    crash: Crash, delay_ms: int, in_state: Callable[..., dict[str, Any]]
) -> None:
    (crash.folder / "kept").write_text("then")
    crash.begin()
    made = crash.client.post(f"{crash.path}/checkpoints").json()
    point = f"{crash.path}/checkpoints/{made['id']}"
    wait_for(lambda: crash.client.get(point).json()["can_restore_files"], "the files to be saved")
    assert crash.client.post(f"{point}/resume").is_success
    (crash.folder / "go").touch()
    crash.wait("idle")
    (crash.folder / "kept").write_text("now")
    done = crash.ask(f"checkpoints/{made['id']}/rollback", delay_ms=delay_ms, restore_files=True)
    assert done["session"]["state"] == "idle"
    assert done["messages_superseded"] > 0
    assert (crash.folder / "kept").read_text() == "then"
    undone = crash.client.post(f"{point}/rollback", json={"undo_restore": True})
    assert undone.is_success
    assert (crash.folder / "kept").read_text() == "now"
    report = crash.client.post("/admin/consistency", params={"mode": "quick"}).json()
    assert report["issue_count"] == 0
