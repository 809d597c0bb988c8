"""From a message to its answer: what we add to the model's own time, beside a bare workflow."""

from __future__ import annotations

import asyncio
import json
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

from temporalio import activity, workflow
from temporalio.client import Client
from temporalio.worker import UnsandboxedWorkflowRunner, Worker

from domain.ids import new_id
from tests.bench.rounds import count, middle, noise, p95, timed_ms
from tests.bench.row import Row
from tests.bench.running import Measured, hear, measured_product
from tests.support.waiting import wait_for

STEPS = 3
ACTIVITIES = 2 * STEPS - 1
SESSIONS = 16


@activity.defn
async def do_nothing() -> None:
    """An activity without work."""


@workflow.defn
class Bare:
    """As many activities as a run of three steps has."""

    @workflow.run
    async def run(self) -> None:
        """One after the other."""
        for _ in range(ACTIVITIES):
            await workflow.execute_activity(do_nothing, start_to_close_timeout=timedelta(minutes=1))


def measure() -> list[Row]:
    """Latency of a message, of its first word, of a run with tools, and runs per second."""
    with measured_product() as measured:
        session_id = measured.session()
        measured.send(session_id, "warm up")
        measured.wait(session_id)
        return [
            _accepted(measured, session_id),
            _first_delta(measured, session_id),
            _three_steps(measured),
            _many(measured),
        ]


def _accepted(measured: Measured, session_id: str) -> Row:
    times = []
    for _ in range(count(60)):
        times.append(timed_ms(lambda: measured.send(session_id, "hello")))
        measured.wait(session_id)
    name = "message posted until it is running, p50"
    return Row(name, middle(times), "ms", None, None, None, "< 100 ms", noise(times))


def _first_delta(measured: Measured, session_id: str) -> Row:
    over = []
    for _ in range(count(40)):
        measured.stub.requests.clear()
        with measured.socket(session_id) as socket:
            measured.send(session_id, "hello")
            hear(socket, "delta")
            arrived = time.perf_counter()
        began = measured.stub.calls[0].first_byte_at
        assert began is not None
        over.append((arrived - began) * 1000)
        measured.wait(session_id)
    name = "first word at the client after the provider's first byte, p50"
    return Row(
        name, middle(over), "ms", None, None, None, "< 40 ms", f"{noise(over)}, p95 {p95(over):.0f}"
    )


def _three_steps(measured: Measured) -> Row:
    """In sessions without a past, so that the length of the history is not what is measured."""
    call = {"call": "list_files", "arguments": {}}
    content = json.dumps({"script": [call] * (STEPS - 1) + [{"say": "Done."}]})
    times = []
    for _ in range(count(30)):
        session_id = measured.session()
        measured.send(session_id, "hello")
        measured.wait(session_id)
        with measured.socket(session_id) as socket:
            began = time.perf_counter()
            measured.send(session_id, content)
            hear(socket, "run.completed")
            times.append((time.perf_counter() - began) * 1000)
        measured.wait(session_id)
    bare = asyncio.run(_bare(measured.product.run_json()["temporal_address"], count(30)))
    ratio = middle(times) / bare
    limit = f"bare workflow of {ACTIVITIES} activities"
    return Row("run of three steps, p50", middle(times), "ms", limit, bare, ratio,
               "≤ 1.5 ×, < 60 ms", noise(times))  # fmt: skip


async def _bare(address: str, rounds: int) -> float:
    client = await Client.connect(address)
    queue = f"bench-{new_id()}"
    worker = Worker(
        client,
        task_queue=queue,
        workflows=[Bare],
        activities=[do_nothing],
        workflow_runner=UnsandboxedWorkflowRunner(),
    )
    times = []
    async with worker:
        for _ in range(rounds):
            began = time.perf_counter()
            await client.execute_workflow(Bare.run, id=new_id(), task_queue=queue)
            times.append((time.perf_counter() - began) * 1000)
    return middle(times)


def _many(measured: Measured) -> Row:
    sessions = [measured.session() for _ in range(SESSIONS)]
    rates = []
    # One client looks, so that looking costs next to nothing.
    running = {"state": "running"}

    def rest() -> bool:
        return not measured.http.get("/sessions", params=running).json()["items"]

    for _ in range(count(5)):
        began = time.perf_counter()
        with ThreadPoolExecutor(SESSIONS) as pool:
            list(pool.map(lambda session_id: measured.send(session_id, "hello"), sessions))
        wait_for(rest, "all runs", timeout_s=120.0)
        rates.append(SESSIONS / (time.perf_counter() - began))
    name = f"{SESSIONS} sessions at once"
    return Row(name, middle(rates), "runs/s", None, None, None, "", noise(rates))
