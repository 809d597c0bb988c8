"""Upkeep keeps what was streamed for ten minutes or fifty mebibytes, unless told otherwise."""

from __future__ import annotations

import pytest
from sqlalchemy import update

from holdfast.domain.clock import now_ms
from holdfast.settings.config import Retention
from holdfast.storage.database.engine import Db
from holdfast.storage.database.opening import OpenStore
from holdfast.storage.database.rows import table
from holdfast.storage.database.tables_history import Frame
from holdfast.storage.log import frames
from tests.support.sample_library import SampleLibrary
from worker.upkeep import prune

_frames = table(Frame)


def stream(store: OpenStore, session_id: str, *, minutes_ago: float, mebibytes: int = 0) -> None:
    """One frame, as if it had been streamed then and were that large."""

    def write(db: Db) -> None:
        seq = frames.append(db, session_id, ("delta", {}))
        at = now_ms() - round(minutes_ago * 60_000)
        mine = (_frames.c.session_id == session_id) & (_frames.c.seq == seq)
        values = {"created_at": at, "size": mebibytes * 1024 * 1024}
        db.connection().execute(update(_frames).where(mine).values(**values))

    store.write(write)


async def left(store: OpenStore, session_id: str, retention: Retention) -> list[int]:
    await prune(store, retention)
    return [
        one.seq for one in store.read(lambda db: frames.texts_after(db, session_id, 0, limit=99))
    ]


@pytest.mark.req("K-090", "K-091")
async def test_what_is_older_than_ten_minutes_goes(sqlite_store: OpenStore) -> None:
    session = SampleLibrary(sqlite_store).session()
    for minutes in (31, 10.5, 9.5, 0):
        stream(sqlite_store, session, minutes_ago=minutes)
    assert await left(sqlite_store, session, Retention()) == [3, 4]


@pytest.mark.req("K-091")
async def test_what_exceeds_fifty_mebibytes_goes_oldest_first(sqlite_store: OpenStore) -> None:
    session = SampleLibrary(sqlite_store).session()
    for _ in range(4):
        stream(sqlite_store, session, minutes_ago=0, mebibytes=20)
    assert await left(sqlite_store, session, Retention()) == [3, 4]
    assert await left(sqlite_store, session, Retention(frames_mib=20)) == [4]
