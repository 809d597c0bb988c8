"""A fork costs the same however long its source is."""

from __future__ import annotations

import tempfile
from pathlib import Path

from storage.opening import OpenStore, open_store
from tests.bench.rounds import TINY, count, middle, noise, timed_ms
from tests.bench.row import Row
from tests.support.desk import Desk

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
    desk = Desk(store)
    sources = {size: _source(desk, size) for size in (LONG, SHORT)}
    times: dict[int, list[float]] = {LONG: [], SHORT: []}
    for _ in range(count(40)):
        for size, source in sources.items():
            times[size].append(timed_ms(lambda source=source: desk.fork(source)))  # type: ignore[misc]
    long, short = middle(times[LONG]), middle(times[SHORT])
    name = f"fork of a session of {LONG:,} messages, p50"
    return [Row(name, long, "ms", f"of {SHORT} messages", short, long / short, "≤ 2 ×",
                noise(times[LONG]))]  # fmt: skip


def _source(desk: Desk, size: int) -> str:
    session_id = desk.session()
    desk.fill(session_id, size)
    desk.run(session_id)
    return session_id
