"""Files what a terminal showed when it is over: the blob first, then the rows that name it."""

from __future__ import annotations

import asyncio

from holdfast.domain.transcript import Transcript
from holdfast.storage.database import blobs
from holdfast.storage.database.engine import Db
from holdfast.storage.database.opening import OpenStore
from holdfast.storage.sessions import ptys


async def file(store: OpenStore, pty_id: str, transcript: Transcript) -> bool:
    """Close the terminal with its transcript; False when it was closed before. Safe to repeat."""
    if transcript.timed is None:
        return await store.awrite(lambda db: ptys.closed(db, pty_id, transcript, blob_id=None))
    blob = await asyncio.to_thread(store.blobs.put, transcript.timed, "application/json")

    def close(db: Db) -> bool:
        return ptys.closed(db, pty_id, transcript, blob_id=blobs.commit(db, blob))

    return await store.awrite(close)
