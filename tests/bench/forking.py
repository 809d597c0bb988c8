"""A fork costs the same however long its source is, in time and in room."""

from __future__ import annotations

import tempfile
from pathlib import Path

from sqlalchemy import text

from holdfast.storage.database.engine import Db
from holdfast.storage.database.opening import OpenStore, open_store
from tests.bench.rounds import TINY, count, middle, noise, timed_ms
from tests.bench.row import Row
from tests.support.workflow_double import WorkflowDouble

LONG, SHORT = (1000 if TINY else 10_000), 100


def measure() -> list[Row]:
    """Forks of a long and of a short session, turn about."""
    with tempfile.TemporaryDirectory(prefix="hf-bench-") as folder:
        store = open_store(None, Path(folder))
        try:
            return _measure(store)
        finally:
            store.close()


def _measure(store: OpenStore) -> list[Row]:
    workflow = WorkflowDouble(store)
    sources = {size: _source(workflow, size) for size in (LONG, SHORT)}
    times: dict[int, list[float]] = {LONG: [], SHORT: []}
    grown: dict[int, list[float]] = {LONG: [], SHORT: []}
    for _ in range(count(40)):
        for size, source in sources.items():
            before = _bytes(store)
            times[size].append(timed_ms(lambda source=source: workflow.fork(source)))  # type: ignore[misc]
            grown[size].append((_bytes(store) - before) / 1024)
    long, short = middle(times[LONG]), middle(times[SHORT])
    # Pages are taken by the handful: what a fork takes is the mean, not the middle.
    room = {size: sum(kib) / len(kib) for size, kib in grown.items()}
    return [
        Row(f"fork of a session of {LONG:,} messages, p50", long, "ms", f"of {SHORT} messages",
            short, long / short, "≤ 2 ×, < 50 ms", noise(times[LONG])),
        Row("growth of the store by that fork, mean", room[LONG], "KiB", f"of {SHORT} messages",
            room[SHORT], room[LONG] / max(room[SHORT], 0.001), "< 64 KiB",
            f"largest {max(grown[LONG]):.0f} KiB"),
    ]  # fmt: skip


def _bytes(store: OpenStore) -> int:
    def pages(db: Db) -> int:
        ask = db.connection().execute
        count_of, size_of = ask(text("PRAGMA page_count")), ask(text("PRAGMA page_size"))
        return int(count_of.scalar_one()) * int(size_of.scalar_one())

    return store.read(pages) + store.blobs.size()


def _source(workflow: WorkflowDouble, size: int) -> str:
    session_id = workflow.session()
    workflow.fill(session_id, size)
    workflow.run(session_id)
    return session_id
