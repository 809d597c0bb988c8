"""What a fleet does: runs per second with one, two and three workers, and what a run costs.

Then a long command in the middle of which the worker of its host is replaced by the next one.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import subprocess
import tempfile
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx2
import psycopg
from temporalio.client import Client

from holdfast.cli import credentials
from holdfast.settings.environment import Settings
from holdfast.supervisor import ports, readiness
from tests.bench.rounds import TINY
from tests.bench.row import Row
from tests.support.servers.postgres import PostgresCluster
from tests.support.servers.product import HOLDFAST
from tests.support.servers.temporal_server import TemporalServer
from tests.support.waiting import wait_for

WORKERS = 3
SESSIONS, RUNS_EACH = (3, 1) if TINY else (12, 4)
# HOLDFAST_BENCH_LONG_S=600 is the ten minutes of issue 16; nobody waits for them each time.
LONG_S = 3 if TINY else int(os.environ.get("HOLDFAST_BENCH_LONG_S", "60"))
# A run of three model calls and two tools, one of which needs the session's host.
CALLS = [{"call": "list_files", "arguments": {}}, {"call": "todo", "arguments": {"todos": []}}]
CONNECTIONS = "SELECT count(*) FROM pg_stat_activity WHERE datname = %s"
# What Temporal Cloud bills as an action, by the events that a history has of them.
ACTIONS = (
    "ACTIVITY_TASK_SCHEDULED",
    "TIMER_STARTED",
    "WORKFLOW_EXECUTION_SIGNALED",
    "WORKFLOW_EXECUTION_UPDATE_ACCEPTED",
    "MARKER_RECORDED",
    "UPSERT_WORKFLOW_SEARCH_ATTRIBUTES",
)
TICKS_PER_S = os.sysconf("SC_CLK_TCK")


class BenchedFleet:
    """An API, and machines that are added one by one."""

    def __init__(self, folder: Path, url: str, temporal: str) -> None:
        self.folder, self.url, self.temporal = folder, url, temporal
        self.children: dict[str, subprocess.Popen[bytes]] = {}
        self.settings = self._machine("api")
        self.token = credentials.token_of_the_default_operator(self.settings)
        self._start("api", self.settings)
        wait_for(lambda: readiness.ask(self.settings.api_url, "GET", "/healthz")[0] == 200, "API")
        self.http = httpx2.Client(
            base_url=f"{self.settings.api_url}/api/v1",
            headers={"Authorization": f"Bearer {self.token}"},
            timeout=120.0,
            trust_env=False,
        )

    def add(self, number: int) -> None:
        """One more machine: its terminal host and its worker."""
        settings = self._machine(f"machine-{number}")
        self._start("terminal-host", settings)
        self.start_worker(number)
        wait_for(lambda: len(self._up()) == number + 1, "the host to be up")

    def start_worker(self, number: int) -> None:
        """A worker beside that machine's terminal host."""
        self._start("worker", self._machine(f"machine-{number}"))

    def project(self) -> str:
        """A project without a cage; its id."""
        folder = self.folder / "project"
        (folder / ".holdfast").mkdir(parents=True)
        text = "version: 1\nproject: fleet\nprimary: {cage: disabled}\n"
        text += "limits: {running_sessions: 64}\n"
        (folder / ".holdfast" / "project.yaml").write_text(text)
        return str(self._post("/projects/load", {"path": str(folder), "trust": True})["id"])

    def session(self, project_id: str) -> str:
        """A new session's id."""
        return str(self._post(f"/projects/{project_id}/sessions", {})["id"])

    def run(self, session_id: str, script: list[dict[str, Any]]) -> dict[str, Any]:
        """A message, and its run when it is over."""
        body = {"content": json.dumps({"script": script}), "model_override": "scripted:demo"}
        sent = self._post(f"/sessions/{session_id}/messages", body)
        path = f"/sessions/{session_id}/runs/{sent['run']['id']}"
        found = wait_for(lambda: self._over(path), "the run to be over", timeout_s=LONG_S + 300.0)
        assert found is not None
        assert found["state"] == "done", found
        # Over for its workflow too, so that the next message is not refused.
        idle = f"/sessions/{session_id}"
        wait_for(lambda: self.http.get(idle).json()["state"] == "idle", "the session to be idle")
        return found

    def cpu_s(self) -> float:
        """What our processes have used so far."""
        total = 0.0
        for child in self.children.values():
            stat = Path(f"/proc/{child.pid}/stat").read_text().rpartition(")")[2].split()
            total += (int(stat[11]) + int(stat[12])) / TICKS_PER_S
        return total

    def close(self) -> None:
        """End everything, workers first."""
        for name in sorted(self.children, key=lambda name: "worker" not in name):
            child = self.children[name]
            if child.poll() is None:
                child.terminate()
            child.wait(timeout=60.0)
        self.http.close()

    def _over(self, path: str) -> dict[str, Any] | None:
        found: dict[str, Any] = self.http.get(path).json()
        return found if found.get("state") in {"done", "failed", "cancelled"} else None

    def _up(self) -> list[Any]:
        return [one for one in self.http.get("/hosts").json()["items"] if one["state"] == "up"]

    def _post(self, path: str, body: Any) -> dict[str, Any]:
        answer = self.http.post(path, json=body)
        assert answer.status_code < 300, answer.text
        found: dict[str, Any] = answer.json()
        return found

    def _machine(self, name: str) -> Settings:
        settings = Settings(
            home=self.folder / name,
            bind=f"127.0.0.1:{ports.free_port()}",
            database_url=self.url,
            blobs_url=(self.folder / "blobs").as_uri(),
            temporal_address=self.temporal,
            temporal_embedded=False,
            host_name=name,
            drain_s=1.0,
        )
        settings.make_home()
        return settings

    def _start(self, part: str, settings: Settings) -> None:
        foreign = ("HOLDFAST_", "TEMPORAL_")
        kept = {key: value for key, value in os.environ.items() if not key.startswith(foreign)}
        self.children[f"{settings.host_name}/{part}"] = subprocess.Popen(
            [HOLDFAST, part],
            env={**kept, **settings.child_environment()},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )


def measure() -> list[Row]:
    """Three machines on an own Postgres and an own Temporal, one after the other."""
    cluster, temporal = PostgresCluster().start(), TemporalServer().start()
    try:
        # Short on purpose: Unix socket paths have a limit.
        with tempfile.TemporaryDirectory(prefix="hf-fr-", dir="/tmp") as folder:
            url = cluster.migrated_database(Path(folder) / "template")
            fleet = BenchedFleet(Path(folder), url, temporal.address)
            try:
                return _rows(fleet, cluster)
            finally:
                fleet.close()
    finally:
        temporal.stop()
        cluster.stop()


def _rows(fleet: BenchedFleet, cluster: PostgresCluster) -> list[Row]:
    project_id, last = fleet.project(), ""
    rows: list[Row] = []
    for number in range(WORKERS):
        fleet.add(number)
        sessions = [fleet.session(project_id) for _ in range(SESSIONS)]
        with ThreadPoolExecutor(SESSIONS) as pool:
            list(pool.map(lambda one: fleet.run(one, [{"say": "Warm."}]), sessions))
            began, cpu_s = time.monotonic(), fleet.cpu_s()
            list(pool.map(lambda one: _work(fleet, one), sessions))
            took_s, cpu_s = time.monotonic() - began, fleet.cpu_s() - cpu_s
        last, runs = sessions[0], SESSIONS * RUNS_EACH
        what = f"with {number + 1} worker{'s' if number else ''}"
        rows.append(Row(f"runs of a fleet {what}", runs / took_s, "per s"))
        rows.append(Row(f"CPU of our processes a run {what}", cpu_s / runs * 1000, "ms"))
    rows.append(Row("Temporal actions a run of three steps", _actions(fleet, last), ""))
    rows.append(_connections(fleet, cluster))
    return [*rows, *_long_command(fleet, project_id)]


def _work(fleet: BenchedFleet, session_id: str) -> None:
    for _ in range(RUNS_EACH):
        fleet.run(session_id, [*CALLS, {"say": "Done."}])


def _connections(fleet: BenchedFleet, cluster: PostgresCluster) -> Row:
    with psycopg.connect(cluster.url("postgres"), autocommit=True) as connection:
        found = connection.execute(CONNECTIONS, (fleet.url.rpartition("/")[2],)).fetchone()
    assert found is not None
    name = "connections a process after that work (an API, three workers)"
    return Row(name, int(found[0]) / (WORKERS + 1), "", goal="≤ 11")


def _actions(fleet: BenchedFleet, session_id: str) -> float:
    """By the history of a session that did nothing but these runs, and a short one before."""
    events = asyncio.run(_history(fleet.temporal, session_id))
    return sum(events[kind] for kind in ACTIONS) / (RUNS_EACH + 1)


async def _history(address: str, session_id: str) -> Counter[str]:
    client = await Client.connect(address)
    history = await client.get_workflow_handle(session_id).fetch_history()
    return Counter(_kind(one) for one in history.events)


def _kind(event: Any) -> str:
    # The attributes of an event are named after its kind.
    attributes: str = event.WhichOneof("attributes") or ""
    return attributes.removesuffix("_event_attributes").upper()


def _long_command(fleet: BenchedFleet, project_id: str) -> list[Row]:
    """The worker beside it is told to stop in the middle, and the next one attaches."""
    session_id = fleet.session(project_id)
    fleet.run(session_id, [CALLS[0], {"say": "Placed."}])
    host = fleet.http.get(f"/sessions/{session_id}").json()["host"]["name"]
    begun, ended = fleet.folder / "project" / "begun", fleet.folder / "project" / "ended"
    command = (
        f"touch {begun}; for i in $(seq 1 {LONG_S}); do echo line-$i; sleep 1; done; touch {ended}"
    )
    call = {"call": "shell", "arguments": {"command": command, "timeout_s": LONG_S + 120}}
    with ThreadPoolExecutor(1) as pool:
        run = pool.submit(fleet.run, session_id, [call, {"say": "Went on."}])
        wait_for(begun.exists, "the command to begin")
        worker = fleet.children[f"{host}/worker"]
        worker.send_signal(signal.SIGTERM)
        worker.wait(timeout=120.0)
        fleet.start_worker(int(host.rpartition("-")[2]))
        wait_for(ended.exists, "the command to end", timeout_s=LONG_S + 240.0)
        ended_at = time.monotonic()
        run.result()
    took_s = time.monotonic() - ended_at
    said = fleet.http.get(f"/sessions/{session_id}/messages").text
    seen = set(re.findall(r"line-(\d+)", said))
    missing = sum(1 for number in range(1, LONG_S + 1) if str(number) not in seen)
    what = f"a command of {LONG_S} s whose worker was replaced"
    return [
        Row(f"{what}: lines of its output that are missing", missing, "", goal="0"),
        Row(f"{what}: run over after its end", took_s, "s"),
    ]
