"""Removes blobs that no row names: their transaction failed after their bytes were written."""

from __future__ import annotations

import asyncio
import time
from functools import partial
from itertools import islice

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
    """Remove old orphans and half-written drafts; how many went (F-019)."""
    before_s = time.time() - grace_s
    removed = store.blobs.delete_drafts(before_s=before_s)
    old = (blob.id for blob in store.blobs.list() if blob.stored_at_s < before_s)
    while chunk := list(islice(old, CHUNK)):
        for blob_id in set(chunk) - store.read(partial(_committed, chunk)):
            removed += store.blobs.delete(blob_id, before_s=before_s)
    return removed


def _committed(blob_ids: list[str], db: Db) -> set[str]:
    rows = select(_blobs.c.id).where(_blobs.c.id.in_(blob_ids))
    return {str(row[0]) for row in db.connection().execute(rows)}
