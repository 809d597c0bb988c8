"""A call that waits for a word outlives every part of the product, and is made once."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.conftest import Account
from tests.e2e.faults.test_crashes import over
from tests.support.servers.product import Product
from tests.support.waiting import wait_for

pytestmark = pytest.mark.timeout(400)
RULES = """
version: 1
project: careful
primary:
  model: "scripted:echo"
  cage: disabled
  permissions: [{tool: shell, pattern: "echo *", effect: ask}]
"""


def test_it_waits_over_kills_and_a_restart_and_is_then_answered_from_a_command_line(
    product: Product,
    operator: Account,
    client: httpx2.Client,
    make_project: Callable[..., dict[str, Any]],
) -> None:
    project = make_project(RULES)
    session = client.post(f"/projects/{project['id']}/sessions", json={}).json()
    push = {"call": "shell", "arguments": {"command": "echo pushed >> pushes"}}
    content = json.dumps({"script": [push, push, {"say": "understood"}]})
    sent = client.post(f"/sessions/{session['id']}/messages", json={"content": content}).json()
    pushes = Path(session["working_directory"]) / "pushes"

    def waiting(but: str = "") -> str | None:
        answer = product.command("approvals", "--json", token=operator.token)
        found = json.loads(answer.stdout) if answer.returncode == 0 else []
        return next((one["id"] for one in found if one["id"] != but), None)

    first = wait_for(waiting, "the first approval")
    assert first is not None
    killed = {part: product.kill(part) for part in ("worker", "api")}
    for part, pid in killed.items():
        product.wait_restarted(part, pid)
    assert not pushes.exists()
    allowed = product.command("approve", first[:20], token=operator.token)
    assert (allowed.returncode, allowed.stdout.strip()) == (0, "allowed"), allowed.stderr
    second = wait_for(lambda: waiting(first), "the second approval")
    assert second is not None
    product.restart()
    assert pushes.read_text() == "pushed\n"
    denied = product.command("deny", second, "--note", "once is enough", token=operator.token)
    assert (denied.returncode, denied.stdout.strip()) == (0, "denied"), denied.stderr
    assert product.command("approve", second, token=operator.token).returncode == 3
    run = over(client, session["id"], sent["run"]["id"])
    assert run["state"] == "done", run["error"]
    assert pushes.read_text() == "pushed\n"
    said = client.get(f"/sessions/{session['id']}/messages").json()["items"]
    assert any("once is enough" in str(one["content"]) for one in said)
    shown = product.command("permissions", "--session", session["id"], token=operator.token)
    assert shown.returncode == 0
