"""A home on a disk that fills up: clear words, nothing acknowledged is lost, and it goes on."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.support.servers.product import Product
from tests.support.waiting import wait_for

DISK_MIB = 48
# With room in the context for messages that need room on the disk.
WIDE = """
providers.wide = {driver = "scripted", context_window = 1_000_000}
aliases.default = "wide:demo"
"""


@pytest.fixture
def small_disk() -> Iterator[Path]:
    """A file system of its own with little room; needs root, as in a container."""
    folder = Path(tempfile.mkdtemp(prefix="hf-disk-"))
    command = ["mount", "-t", "tmpfs", "-o", f"size={DISK_MIB}m,mode=0700", "tmpfs", str(folder)]
    if os.geteuid() != 0 or subprocess.run(command, check=False, capture_output=True).returncode:
        shutil.rmtree(folder)
        pytest.skip("a small file system can only be mounted by root")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)
    folder.rmdir()


@pytest.fixture
def product_on_it(small_disk: Path) -> Iterator[Product]:
    product = Product(home=small_disk, config=WIDE)
    yield product.start()
    product.close()


@pytest.fixture
def local(product_on_it: Product) -> Iterator[httpx2.Client]:
    with product_on_it.api(product_on_it.token()) as client:
        yield client


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_full_disk_is_said_and_left_behind(
    product_on_it: Product, local: httpx2.Client, tmp_path: Path
) -> None:
    project = local.post("/projects/load", json={"path": str(tmp_path)}).json()
    session = local.post(f"/projects/{project['id']}/sessions", json={}).json()
    path = f"/sessions/{session['id']}"

    def say(content: str) -> httpx2.Response:
        return local.post(f"{path}/messages", json={"content": content}, timeout=120.0)

    def state() -> str:
        found: str = local.get(path).json()["state"]
        return found

    assert say("before").status_code == 202
    wait_for(lambda: state() == "idle", "the first run", timeout_s=120.0)
    ballast = product_on_it.home / "ballast"
    fill(ballast)
    answer = say("y" * 500_000)
    assert answer.status_code == 503, answer.text
    assert "cannot write" in answer.json()["error"]["message"]
    assert state() in {"idle", "running"}
    ballast.unlink()
    product_on_it.wait_until_ready()
    wait_for(lambda: state() == "idle", "rest", timeout_s=120.0)
    wait_for(lambda: say("after").status_code == 202, "a message to be taken", timeout_s=120.0)
    wait_for(lambda: state() == "idle", "the last run", timeout_s=120.0)
    items: list[dict[str, Any]] = local.get(f"{path}/messages").json()["items"]
    asked = [one["content"] for one in items if one["role"] == "operator"]
    assert asked[0] == "before"
    assert asked[-1] == "after"
    report = local.post("/admin/consistency", params={"mode": "deep"}).json()
    assert report["status"] == "ok", report


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_a_disk_that_fills_up_in_the_middle_of_a_run_does_not_end_it(
    product_on_it: Product, local: httpx2.Client, tmp_path: Path
) -> None:
    project = local.post("/projects/load", json={"path": str(tmp_path)}).json()
    session = local.post(f"/projects/{project['id']}/sessions", json={}).json()
    path = f"/sessions/{session['id']}"
    said = "0123456789" * 30_000
    script = [
        {"call": "shell", "arguments": {"command": "echo once >> ran.txt; sleep 2"}},
        {"say": said, "chunks": 60, "every_ms": 50},
    ]
    content = json.dumps({"script": script})
    assert local.post(f"{path}/messages", json={"content": content}).status_code == 202
    wait_for((tmp_path / "ran.txt").exists, "the command", timeout_s=120.0)
    ballast = product_on_it.home / "ballast"
    fill(ballast)
    refused = local.post(f"{path}/messages", json={"content": "y" * 500_000}, timeout=120.0)
    assert refused.status_code in {409, 503}, refused.text
    time.sleep(5)  # into the middle of the answer: that is the fault itself
    ballast.unlink()
    product_on_it.wait_until_ready()
    wait_for(lambda: local.get(path).json()["state"] == "idle", "the end", timeout_s=240.0)
    runs = local.get(f"{path}/runs").json()["items"]
    assert [one["state"] for one in runs] == ["done"]
    items: list[dict[str, Any]] = local.get(f"{path}/messages").json()["items"]
    assert items[-1]["content"] == said
    assert (tmp_path / "ran.txt").read_text() == "once\n"
    report = local.post("/admin/consistency", params={"mode": "deep"}).json()
    assert report["status"] == "ok", report


def fill(ballast: Path) -> None:
    """Until there is no room for one more byte."""
    with ballast.open("wb") as file:
        try:
            while True:
                file.write(b"x" * 65536)
                file.flush()
        except OSError:
            pass  # full, which is what we want
