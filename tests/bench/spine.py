"""From a message to its answer: what we add to the model's own time, beside a bare workflow."""

from __future__ import annotations

import json
import time
from concurrent.futures import ThreadPoolExecutor

from tests.bench.bare import bare_runs
from tests.bench.rounds import count, middle, noise, p95, timed_ms
from tests.bench.row import Row
from tests.bench.running import Measured, hear, measured_product
from tests.support.waiting import wait_for

STEPS = 3
ACTIVITIES = 2 * STEPS - 1
SESSIONS = 16
SCRIPTED = "scripted:demo"


def measure() -> list[Row]:
    """Latency of a message, of its first word, of a run with tools, and runs per second."""
    with measured_product() as measured:
        session_id = measured.session()
        measured.send(session_id, "warm up")
        measured.wait(session_id)
        return [
            _accepted(measured, session_id),
            _first_delta(measured, session_id),
            *_three_steps(measured),
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


def _three_steps(measured: Measured) -> list[Row]:
    """In sessions without a past, so that the length of the history is not what is measured.

    In turn with the bare workflow: what else the machine does meanwhile slows all alike. Once with
    a provider behind HTTP, whose client library costs more than we do, and once without.
    """
    over_http, inside, bare_times = [], [], []
    address = measured.product.run_json()["temporal_address"]
    with bare_runs(address, ACTIVITIES) as bare_run:
        for _ in range(count(30)):
            over_http.append(_one_run(measured, None))
            inside.append(_one_run(measured, SCRIPTED))
            bare_times.append(timed_ms(bare_run))
    bare = middle(bare_times)
    limit = f"bare workflow of {ACTIVITIES} activities"
    goal = "≤ 1.5 ×, < 60 ms"
    named = {"": over_http, " without a provider's client": inside}
    return [
        Row(f"run of three steps{name}, p50", middle(times), "ms", limit, bare,
            middle(times) / bare, goal, noise(times))
        for name, times in named.items()
    ]  # fmt: skip


def _one_run(measured: Measured, model: str | None) -> float:
    session_id = measured.session()
    measured.send(session_id, json.dumps({"script": [{"say": "Hello."}]}), model)
    measured.wait(session_id)
    call = {"call": "list_files", "arguments": {}}
    content = json.dumps({"script": [call] * (STEPS - 1) + [{"say": "Done."}]})
    with measured.socket(session_id) as socket:
        began = time.perf_counter()
        measured.send(session_id, content)
        hear(socket, "run.completed")
        taken_ms = (time.perf_counter() - began) * 1000
    measured.wait(session_id)
    return taken_ms


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
