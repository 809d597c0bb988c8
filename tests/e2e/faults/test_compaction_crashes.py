"""Real SIGKILLs in the middle of a compaction by hand: no run of it stays open."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.support.servers.product import Product
from tests.support.waiting import wait_for

# The command says when it began and waits until it may go on.
PROJECT = """
version: 1
project: patient
primary:
  model: scripted:echo
  compaction:
    strategy: delegate
    delegate_to: >-
      command: sh -c 'touch began; until test -e go; do sleep 0.05; done;
      echo "{\\"summary\\": \\"in short\\"}"'
"""


def ask(client: httpx2.Client, path: str) -> int | None:
    """The status of a compaction by hand; None when the API dies meanwhile."""
    try:
        return client.post(f"{path}/compact", json={}, timeout=120.0).status_code
    except httpx2.TransportError:
        return None


@pytest.mark.slow
@pytest.mark.timeout(400)
@pytest.mark.req("K-080", "K-099")
def test_a_compaction_that_was_killed_with_temporals_file_is_over_and_can_be_asked_for_again(
    product: Product,
    client: httpx2.Client,
    make_project: Callable[..., dict[str, Any]],
    run_message: Callable[..., dict[str, Any]],
) -> None:
    project = make_project(PROJECT)
    folder = Path(project["path"])
    session = client.post(f"/projects/{project['id']}/sessions", json={}).json()["id"]
    path = f"/sessions/{session}"
    for number in range(4):
        run_message(session, f"{number}: {'the quick brown fox ' * 30}")

    def newest() -> dict[str, Any]:
        found: dict[str, Any] = client.get(f"{path}/runs").json()["items"][0]
        return found

    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(ask, client, path)
        wait_for((folder / "began").exists, "the compaction to begin")
        lost = newest()
        assert (lost["state"], lost["operator_message"]) == ("running", None)
        product.kill_all()
        assert asked.result(timeout=120.0) is None
    for file in product.home.glob("temporal.db*"):
        file.unlink()
    product.start()

    wait_for(lambda: newest()["state"] != "running", "the end of the lost run")
    ended = newest()
    assert (ended["id"], ended["state"]) == (lost["id"], "failed")
    assert ended["error"]["code"] == "daemon_crash_during_run"
    assert client.get(path).json()["state"] == "idle"
    (folder / "go").touch()
    assert ask(client, path) == 200
    again = newest()
    assert (again["state"], again["finish_reason"]) == ("done", "compacted")
    assert run_message(session, "still there?")["state"] == "done"
