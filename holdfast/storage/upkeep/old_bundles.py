"""Forgets bundles of files that no checkpoint can bring back any more."""

from __future__ import annotations

import time

from holdfast.domain.clock import now_ms
from holdfast.storage.database.engine import Db
from holdfast.storage.database.opening import OpenStore
from holdfast.storage.moves import tree_bundles
from holdfast.storage.upkeep.removal import delete_bytes, drop_blobs

# What was just stored may not be named by its checkpoint yet.
GRACE_MS = 24 * 60 * 60 * 1000


def sweep(store: OpenStore, *, grace_ms: int = GRACE_MS) -> int:
    """Forget them, one transaction for each session; how many blobs went."""
    removed, last = 0, ""
    while page := store.read(lambda db, last=last: tree_bundles.sessions_after(db, last)):  # type: ignore[misc]
        for session_id in page:
            removed += _sweep(store, session_id, grace_ms)
        last = page[-1]
    return removed


def _sweep(store: OpenStore, session_id: str, grace_ms: int) -> int:
    began = time.time()

    def work(db: Db) -> set[str]:
        before_ms = now_ms() - grace_ms
        unused = tree_bundles.drop_unused(db, session_id, before_ms=before_ms)
        return drop_blobs(db, store, unused) if unused else set()

    gone = store.write(work)
    delete_bytes(store, gone, began)
    return len(gone)
