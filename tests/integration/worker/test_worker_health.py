"""A worker's health and numbers over HTTP, for those who keep fleets."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx2

from holdfast.supervisor import ports
from tests.support.waiting import wait_for

REPOSITORY = Path(__file__).parents[3]


@contextmanager
def worker_process(home: Path, temporal: str, metrics_port: int) -> Iterator[None]:
    """A worker of its own, as a fleet runs it."""
    environment = {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": str(REPOSITORY),
        "HOLDFAST_HOME": str(home),
        "HOLDFAST_TEMPORAL_ADDRESS": temporal,
        "HOLDFAST_METRICS_BIND": f"127.0.0.1:{metrics_port}",
        "HOLDFAST_TASK_QUEUE": f"health-{metrics_port}",
    }
    command = [sys.executable, "-m", "holdfast.cli.part", "worker"]
    with (home.parent / "worker.log").open("wb") as log:
        worker = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
    try:
        yield
    finally:
        worker.send_signal(signal.SIGTERM)
        worker.wait(timeout=60)


def status(url: str) -> int:
    try:
        return httpx2.get(url, trust_env=False, timeout=5).status_code
    except httpx2.HTTPError:
        return 0


def test_a_worker_without_temporal_is_not_healthy(tmp_path: Path) -> None:
    port, nobody = ports.free_port(), ports.free_port()
    with worker_process(tmp_path / "home", f"127.0.0.1:{nobody}", port):
        wait_for(lambda: status(f"http://127.0.0.1:{port}/healthz") == 503, "its refusal")


def test_a_worker_that_polls_is_healthy_and_shows_its_numbers(
    temporal: str, tmp_path: Path
) -> None:
    port = ports.free_port()
    with worker_process(tmp_path / "home", temporal, port):
        base = f"http://127.0.0.1:{port}"
        wait_for(lambda: status(f"{base}/healthz") == 200, "its health")
        numbers = httpx2.get(f"{base}/metrics", trust_env=False, timeout=5).text
        assert "temporal_num_pollers" in numbers
        assert "process_resident_memory_bytes" in numbers
        assert status(f"{base}/other") == 404
