"""A session's tail: read once for all, each at its own pace, whatever is kept of it."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from api.stream import tail as module
from api.stream.tail import Gap, Tail
from holdfast.domain.control_events import AttentionRequired
from holdfast.storage.database.engine import Db
from holdfast.storage.database.opening import OpenStore
from holdfast.storage.log import events, frames, news
from holdfast.storage.log import feed as feed_module
from holdfast.storage.log.feed import Feed
from holdfast.storage.sessions import sessions
from tests.support.sample_library import SampleLibrary


@pytest.fixture
async def feed(sqlite_store: OpenStore) -> AsyncIterator[Feed]:
    found = Feed(sqlite_store)
    yield found
    found.close()


def make_session(store: OpenStore) -> str:
    return SampleLibrary(store).session()


def append(store: OpenStore, session_id: str, count: int) -> None:
    """That many deltas in one transaction."""
    deltas: list[tuple[str, dict[str, Any]]] = [("delta", {})] * count
    store.write(lambda db: frames.append(db, session_id, *deltas))


async def read_until(tail: Tail, after: int, last: int, chance: random.Random) -> list[int]:
    """Every seq that one reader sees, now quick and now slow."""
    seen: list[int] = []
    while after < last:
        rung = tail.rung
        found = await tail.read("output", after)
        if not found:
            await tail.wait(rung)
            continue
        some = found[: chance.randint(1, len(found))]
        seen += [frame.seq for frame in some]
        after = some[-1].seq
        if chance.random() < 0.3:
            await asyncio.sleep(0)
    return seen


@settings(
    max_examples=15,
    deadline=None,
    derandomize=True,
)
@given(
    before=st.integers(0, 40),
    sizes=st.lists(st.integers(1, 9), min_size=1, max_size=12),
    starts=st.lists(st.floats(0, 1), min_size=1, max_size=4),
    batch=st.integers(1, 12),
    kept=st.integers(1, 20),
    carried=st.integers(0, 12),
    underway=st.sampled_from((0, 64)),
    seed=st.integers(0, 999),
)
async def test_every_reader_sees_every_frame_once(
    sqlite_store: OpenStore,
    feed: Feed,
    monkeypatch: pytest.MonkeyPatch,
    before: int,
    sizes: list[int],
    starts: list[float],
    batch: int,
    kept: int,
    carried: int,
    underway: int,
    seed: int,
) -> None:
    monkeypatch.setattr(feed_module, "UNDERWAY_MAX", underway)
    monkeypatch.setattr(news, "CARRIED_ROWS_MAX", carried)
    monkeypatch.setattr(module, "BATCH", batch)
    monkeypatch.setattr(module, "KEPT_FRAMES_MAX", kept)
    session_id = make_session(sqlite_store)
    if before:
        append(sqlite_store, session_id, before)
    last = before + sum(sizes)
    tail = Tail(sqlite_store, feed, session_id)
    chance = random.Random(seed)
    readers = [
        asyncio.create_task(read_until(tail, int(start * before), last, random.Random(seed + n)))
        for n, start in enumerate(starts)
    ]
    for size in sizes:
        await asyncio.to_thread(append, sqlite_store, session_id, size)
        await asyncio.sleep(chance.choice((0, 0.005)))
    heard = await asyncio.gather(*readers)
    tail.close()
    for start, seen in zip(starts, heard, strict=True):
        assert seen == list(range(int(start * before) + 1, last + 1))


@pytest.mark.req("K-093")
async def test_nobody_sees_an_event_before_what_was_said_before_it(
    sqlite_store: OpenStore, feed: Feed
) -> None:
    session_id = make_session(sqlite_store)
    before = sqlite_store.read(lambda db: sessions.get(db, session_id)).event_seq

    def say(db: Db) -> None:
        frames.append(db, session_id, ("delta", {}))
        happened = AttentionRequired(session_id=session_id, attention_kind="test", summary="")
        events.append(db, session_id, happened)

    async def write() -> None:
        for _ in range(60):
            await sqlite_store.awrite(say)

    tail = Tail(sqlite_store, feed, session_id)
    writing = asyncio.create_task(write())
    happened = said = 0
    while happened < 60:
        rung = tail.rung
        found = await tail.read("events", before + happened)
        while spoken := await tail.read("output", said):
            said = spoken[-1].seq
        happened = found[-1].seq - before if found else happened
        assert said >= happened
        if not found:
            await tail.wait(rung)
    await writing
    tail.close()


@pytest.mark.req("K-094")
async def test_what_was_pruned_is_a_gap_for_one_and_nothing_for_others(
    sqlite_store: OpenStore, feed: Feed
) -> None:
    session_id = make_session(sqlite_store)
    append(sqlite_store, session_id, 5)
    sqlite_store.write(lambda db: frames.prune(db, session_id, keep_ms=-10_000))
    append(sqlite_store, session_id, 1)
    tail = Tail(sqlite_store, feed, session_id)
    with pytest.raises(Gap):
        await tail.read("output", 2)
    assert [frame.seq for frame in await tail.read("output", 5)] == [6]
    tail.close()


@pytest.mark.req("K-091")
def test_frames_are_pruned_by_size_as_well_as_by_age(either_store: OpenStore) -> None:
    session_id, small = make_session(either_store), make_session(either_store)
    for owner, count in ((session_id, 6), (small, 1)):
        deltas: list[tuple[str, dict[str, Any]]] = [("delta", {"text": "x" * 1000})] * count

        def write(db: Db, owner: str = owner, deltas: Any = deltas) -> None:
            frames.append(db, owner, *deltas)

        either_store.write(write)
    found = either_store.read(lambda db: frames.sessions_to_prune(db, keep_bytes=3000))
    assert found == [session_id]
    gone = either_store.write(lambda db: frames.prune(db, session_id, keep_bytes=3000))
    assert gone == 4
    row = either_store.read(lambda db: sessions.get(db, session_id))
    assert row.frame_floor == 4
    assert either_store.read(lambda db: frames.sessions_to_prune(db, keep_ms=-10_000)) == sorted(
        [session_id, small]
    )
