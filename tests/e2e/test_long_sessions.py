"""A session with a thousand steps: as quick at its end as at its beginning, and small."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx2
import pytest
from sqlalchemy import select

from holdfast.storage.database.opening import open_store
from holdfast.storage.database.rows import table
from holdfast.storage.database.tables import Call
from tests.support.servers.product import Product
from tests.support.waiting import wait_for

STEPS = 1000
PROJECT = """
version: 1
project: long
primary:
  model: "scripted:echo"
  max_steps: 2000
"""


def durations_ms(home: Path, run_id: str) -> list[int]:
    """When each model call of the run was over, in order."""
    place = table(Call)
    store = open_store(None, home)
    try:
        times = store.read(
            lambda db: [
                int(row.completed_at)
                for row in db.connection().execute(
                    select(place.c.completed_at)
                    .where(place.c.run_id == run_id, place.c.type == "root-agent")
                    .order_by(place.c.step)
                )
            ]
        )
    finally:
        store.close()
    return times


def size_of(home: Path) -> int:
    return sum(path.stat().st_size for path in home.glob("temporal.db*"))


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_thousand_model_calls_cost_the_last_no_more_than_the_first(
    product: Product, client: httpx2.Client, make_project: Callable[..., dict[str, Any]]
) -> None:
    project = make_project(PROJECT)
    session = client.post(f"/projects/{project['id']}/sessions", json={"stuck_guard": False}).json()
    before = size_of(product.home)
    step = {"call": "read_file", "arguments": {"path": "nothing.txt"}}
    content = json.dumps({"script": [{"repeat": STEPS - 1, "step": step}, {"say": "Done."}]})
    answer = client.post(f"/sessions/{session['id']}/messages", json={"content": content})
    run_id = answer.json()["run"]["id"]
    path = f"/sessions/{session['id']}/runs/{run_id}"

    def over() -> bool:
        return bool(client.get(path).json()["state"] in {"done", "failed", "cancelled"})

    wait_for(over, "the end of a thousand steps", timeout_s=850.0)
    assert client.get(path).json()["state"] == "done"
    times = durations_ms(product.home, run_id)
    assert len(times) == STEPS
    first, last = times[100] - times[0], times[-1] - times[-101]
    grown = (size_of(product.home) - before) / STEPS
    report = f"first 100: {first} ms, last 100: {last} ms, Temporal's file: {grown:.0f} B a step"
    assert last <= 1.3 * first, report
    assert grown < 10 * 1024, report
