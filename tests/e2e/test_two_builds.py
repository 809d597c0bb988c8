"""A worker of an older build beside a newer one, on the same queue: runs go on through both."""

from __future__ import annotations

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

from tests.support.product import Product
from tests.support.waiting import wait_for

ROOT = Path(__file__).resolve().parents[2]
# The build that was upgraded from; HOLDFAST_OLDER_COMMIT names another.
OLDER = os.environ.get("HOLDFAST_OLDER_COMMIT", "HEAD")


@pytest.fixture
def older_tree(tmp_path: Path) -> Path:
    command = ["git", "archive", OLDER]
    answer = subprocess.run(command, cwd=ROOT, capture_output=True, check=False)
    if answer.returncode != 0:
        pytest.skip(f"there is no commit {OLDER} here")
    tree = tmp_path / "older"
    with tarfile.open(fileobj=io.BytesIO(answer.stdout)) as archive:
        archive.extractall(tree, filter="data")
    return tree


@pytest.fixture
def older_worker(product: Product, older_tree: Path) -> Iterator[subprocess.Popen[bytes]]:
    run = product.run_json()
    environment = {
        **product.environment(),
        "PYTHONPATH": str(older_tree),
        "HOLDFAST_TEMPORAL_ADDRESS": run["temporal_address"],
    }
    command = [sys.executable, "-P", "-m", "cli.part", "worker"]
    with (product.home / "logs" / "older.log").open("ab") as log:
        worker = subprocess.Popen(command, env=environment, stdout=log, stderr=log, cwd=older_tree)
    log_file = product.home / "logs" / "older.log"
    wait_for(lambda: b"worker.ready" in log_file.read_bytes(), "the older worker", timeout_s=60.0)
    yield worker
    worker.send_signal(signal.SIGTERM)
    worker.wait(timeout=60)


@pytest.mark.slow
@pytest.mark.timeout(300)
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
    for session_id in sessions:
        answer = client.post(f"/sessions/{session_id}/messages", json={"content": content})
        assert answer.status_code == 202, answer.text
    # The newer one dies in the middle; the older one has to go on with what it began.
    killed = product.kill("worker")
    for session_id in sessions:
        in_state(session_id, "idle", timeout_s=120.0)
        run = client.get(f"/sessions/{session_id}/runs").json()["items"][0]
        assert run["state"] == "done", run
    product.wait_restarted("worker", killed)
    assert (Path(project["path"]) / "ran.txt").read_text().splitlines() == ["step"] * 6
