"""Forgets work-tree snapshots that nothing can bring back any more."""

from __future__ import annotations

import asyncio

from activities.trees.snapshots import Trees
from holdfast.domain.clock import now_ms
from holdfast.storage.database.opening import OpenStore
from holdfast.storage.moves import checkpoints
from holdfast.storage.upkeep import old_bundles

EVERY_S = 6 * 60 * 60
RUNS_KEPT_MS = 7 * 24 * 60 * 60 * 1000


async def sweep_forever(store: OpenStore, trees: Trees) -> None:
    """Sweep now and then, until cancelled."""
    while True:
        await asyncio.sleep(EVERY_S)
        await asyncio.to_thread(sweep, store, trees)


async def sweep_bundles_forever(store: OpenStore) -> None:
    """Forget what only the blob store has of old snapshots, until cancelled."""
    while True:
        await asyncio.sleep(EVERY_S)
        await asyncio.to_thread(old_bundles.sweep, store)


def sweep(store: OpenStore, trees: Trees) -> int:
    """Forget what no checkpoint and no run of the last week names; how many snapshots."""
    since = now_ms() - RUNS_KEPT_MS
    return trees.sweep(store.read(lambda db: checkpoints.trees_in_use(db, runs_since=since)))
