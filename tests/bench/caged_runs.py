"""What the default cage costs: a shell call, and the run around it, beside the same without."""

from __future__ import annotations

import json
import time

from tests.bench.rounds import count, middle, noise
from tests.bench.row import Row
from tests.bench.running import Measured, hear, measured_product

MODEL = "scripted:demo"
SCRIPT = json.dumps(
    {"script": [{"call": "shell", "arguments": {"command": "true"}}, {"say": "Done."}]}
)
GOAL = "≤ 1.15 ×"


def measure() -> list[Row]:
    """Caged and bare in turn: what else the machine does meanwhile slows both alike."""
    calls: dict[str, list[float]] = {"caged": [], "bare": []}
    runs: dict[str, list[float]] = {"caged": [], "bare": []}
    with measured_product() as measured:
        projects = {
            "caged": measured.project("caged", "primary: {cage: {}}"),
            "bare": measured.project("bare", "primary: {cage: disabled}"),
        }
        for number in range(count(60) + 2):
            for kind in sorted(projects, reverse=bool(number % 2)):
                call_ms, run_ms = _one_run(measured, projects[kind])
                if number >= 2:  # the first of each warm up
                    calls[kind].append(call_ms)
                    runs[kind].append(run_ms)
    return [
        _row("a shell call in the default cage, p50", "without a cage", calls),
        _row("the run around it, p50", "without a cage", runs),
    ]


def _one_run(measured: Measured, project_id: str) -> tuple[float, float]:
    """From the call's frame to its result's, and from the message to the end of its run."""
    session_id = measured.session(project_id)
    with measured.socket(session_id) as socket:
        began = time.perf_counter()
        measured.send(session_id, SCRIPT, MODEL)
        hear(socket, "tool_call")
        called = time.perf_counter()
        hear(socket, "tool_result")
        answered = time.perf_counter()
        hear(socket, "run.completed")
        ended = time.perf_counter()
    measured.wait(session_id)
    return (answered - called) * 1000, (ended - began) * 1000


def _row(name: str, limit: str, times: dict[str, list[float]]) -> Row:
    caged, bare = middle(times["caged"]), middle(times["bare"])
    return Row(name, caged, "ms", limit, bare, caged / bare, GOAL, noise(times["caged"]))
