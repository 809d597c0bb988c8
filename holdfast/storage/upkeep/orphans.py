"""Removes blobs that no row names: their transaction failed after their bytes were written."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

from sqlalchemy import select

from holdfast.storage.database.engine import Db
from holdfast.storage.database.opening import OpenStore
from holdfast.storage.database.rows import table
from holdfast.storage.database.tables_history import Blob

# A transaction that is still going on is far younger than this.
GRACE_S = 24 * 60 * 60
EVERY_S = 60 * 60
CHUNK = 500
_blobs = table(Blob)


async def collect_forever(store: OpenStore) -> None:
    """Look for orphans now and then, until cancelled."""
    while True:
        await asyncio.sleep(EVERY_S)
        await asyncio.to_thread(collect, store)


def collect(store: OpenStore, *, grace_s: float = GRACE_S) -> int:
    """Remove old orphans and half-written drafts; how many files went (F-019)."""
    removed = 0
    chunk: list[Path] = []
    for path in store.blobs.root.glob("sha256/*/*/*"):
        chunk.append(path)
        if len(chunk) == CHUNK:
            removed += _collect(store, chunk, grace_s)
            chunk = []
    return removed + _collect(store, chunk, grace_s)


def _collect(store: OpenStore, paths: list[Path], grace_s: float) -> int:
    old = [path for path in paths if _age_s(path) >= grace_s]
    names = [f"sha256:{path.name}" for path in old]

    def known(db: Db) -> set[str]:
        rows = select(_blobs.c.id).where(_blobs.c.id.in_(names))
        return {str(row[0]) for row in db.connection().execute(rows)}

    kept = store.read(known) if old else set()
    orphans = [path for path in old if f"sha256:{path.name}" not in kept]
    for path in orphans:
        path.unlink(missing_ok=True)
    return len(orphans)


def _age_s(path: Path) -> float:
    try:
        return time.time() - path.stat().st_mtime
    except OSError:
        return -1.0  # it is gone already
