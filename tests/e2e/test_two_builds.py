"""A worker of an older build beside a newer one, on the same queue: runs go on through both."""

from __future__ import annotations

import asyncio
import io
import json
import os
import signal
import subprocess
import sys
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
from temporalio.client import Client

from tests.support.servers.product import Product
from tests.support.waiting import wait_for

ROOT = Path(__file__).resolve().parents[2]
# Workflows that replay the recorded histories and stores of the same revision: what two builds
# have in common when they take turns. The commit that last changed either is the oldest such.
IN_COMMON = ("tests/replay/histories", "storage/migrations/versions")
CODE = ("workflows", "activities", "domain", "storage", "agent", "worker")
ROUNDS_MAX = 20


def _git(*arguments: str) -> bytes:
    answer = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, check=False)
    if answer.returncode != 0:
        pytest.skip(f"no older build here: git says {answer.stderr.decode()[:200]}")
    return answer.stdout


def _older_commit() -> str:
    """HOLDFAST_OLDER_COMMIT, or the oldest commit that today's build promises to get on with."""
    if chosen := os.environ.get("HOLDFAST_OLDER_COMMIT"):
        return chosen
    if _git("rev-parse", "--is-shallow-repository").strip() == b"true":
        pytest.skip("no older build here: the history is cut off")
    if _git("status", "--porcelain", "--", *IN_COMMON).strip():
        pytest.skip("no older build here: histories or migrations are being changed")
    commit = _git("log", "-1", "--format=%H", "--", *IN_COMMON).decode().strip()
    if not _git("diff", "--name-only", commit, "--", *CODE).strip():
        pytest.skip(f"no older build here: nothing has changed since {commit[:8]}")
    return commit


@pytest.fixture
def older_tree(tmp_path: Path) -> Path:
    """The tree of the build that is upgraded from."""
    tree = tmp_path / "older"
    with tarfile.open(fileobj=io.BytesIO(_git("archive", _older_commit()))) as archive:
        archive.extractall(tree, filter="data")
    return tree


@pytest.fixture
def older_worker(product: Product, older_tree: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A worker of that build, ready, on the product's queue."""
    run = product.run_json()
    environment = {
        **product.environment(),
        "PYTHONPATH": str(older_tree),
        "HOLDFAST_TEMPORAL_ADDRESS": run["temporal_address"],
    }
    command = [sys.executable, "-P", "-m", "holdfast.cli.part", "worker"]
    log_file = product.home / "logs" / "older.log"
    with log_file.open("wb") as log:
        worker = subprocess.Popen(command, env=environment, stdout=log, stderr=log, cwd=older_tree)
    try:
        wait_for(lambda: b"worker.ready" in log_file.read_bytes(), "the older one", timeout_s=120.0)
        yield worker
    finally:
        worker.send_signal(signal.SIGTERM)
        worker.wait(timeout=120.0)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_runs_go_on_while_two_builds_take_turns(
    product: Product,
    older_worker: subprocess.Popen[bytes],
    client: httpx2.Client,
    new_session: Callable[..., dict[str, Any]],
    project: dict[str, Any],
    in_state: Callable[..., dict[str, Any]],
) -> None:
    shell = {"call": "shell", "arguments": {"command": "sleep 0.3; echo step >> ran.txt"}}
    content = json.dumps({"script": [shell, shell, {"say": "Done."}]})
    sessions = [new_session(model_override="scripted:demo")["id"] for _ in range(3)]
    address = product.run_json()["temporal_address"]
    rounds = 0
    # The newer one dies in the middle of the first round; the older one goes on with what it began.
    while rounds == 0 or (len(_pids_at_work(address, sessions)) < 2 and rounds < ROUNDS_MAX):
        rounds += 1
        for session_id in sessions:
            answer = client.post(f"/sessions/{session_id}/messages", json={"content": content})
            assert answer.status_code == 202, answer.text
        killed = product.kill("worker") if rounds == 1 else None
        for session_id in sessions:
            in_state(session_id, "idle", timeout_s=120.0)
            run = client.get(f"/sessions/{session_id}/runs").json()["items"][0]
            assert run["state"] == "done", run
        if killed is not None:
            product.wait_restarted("worker", killed)
    assert older_worker.poll() is None
    assert older_worker.pid in _pids_at_work(address, sessions)
    assert len(_pids_at_work(address, sessions)) >= 2
    lines = (Path(project["path"]) / "ran.txt").read_text().splitlines()
    assert lines == ["step"] * (2 * len(sessions) * rounds)


def _pids_at_work(address: str, session_ids: list[str]) -> set[int]:
    """Which workers took decisions of these sessions, by their own word in Temporal's history."""

    async def look() -> set[int]:
        client = await Client.connect(address)
        found = set()
        for session_id in session_ids:
            async for event in client.get_workflow_handle(session_id).fetch_history_events():
                who = event.workflow_task_completed_event_attributes.identity
                if who:
                    found.add(int(who.partition("@")[0]))
        return found

    return asyncio.run(look())
