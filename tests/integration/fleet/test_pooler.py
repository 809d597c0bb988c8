"""Postgres behind PgBouncer in transaction mode: streams, statements and migrations."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pytest

from holdfast.storage.database.engine import ping
from holdfast.storage.database.opening import REVISION, OpenStore, open_store
from holdfast.storage.database.postgres import PostgresOptions
from holdfast.storage.log import frames
from holdfast.storage.log.feed import ANY, Feed
from holdfast.storage.sessions import sessions
from tests.support.sample_library import SampleLibrary
from tests.support.servers.pgbouncer import PgBouncer

Open = Callable[[bool], OpenStore]


@pytest.fixture
def pooled(pooler: PgBouncer, postgres_url: str, tmp_path: Path) -> Iterator[Open]:
    """Opens a store through the pooler, with or without the direct address."""
    opened: list[OpenStore] = []

    def open_one(direct: bool) -> OpenStore:
        options = PostgresOptions(direct_url=postgres_url if direct else "")
        opened.append(open_store(pooler.url(postgres_url), tmp_path / "home", postgres=options))
        return opened[-1]

    yield open_one
    for store in opened:
        store.close()


async def rings_after_a_commit(feed: Feed, store: OpenStore, session_id: str) -> float:
    """How many seconds a bell takes to ring after a commit; the first look is over before."""
    with feed.listen(session_id) as bell, feed.listen(ANY) as every:
        while await bell.wait(4.0):  # whatever rings while the watch begins
            continue
        await every.wait(0)
        began = time.monotonic()
        await store.awrite(lambda db: frames.append(db, session_id, ("delta", {"text": "x"})))
        assert await bell.wait(30.0)
        taken_s = time.monotonic() - began
        assert await every.wait(30.0)
    return taken_s


async def test_streams_are_notified_past_the_pooler(pooled: Open) -> None:
    store = pooled(True)
    feed = Feed(store)
    session_id = SampleLibrary(store).session()
    try:
        assert await rings_after_a_commit(feed, store, session_id) < 30.0
        assert feed.warning is None
    finally:
        feed.close()


async def test_without_an_address_past_the_pooler_streams_are_looked_at_and_it_is_said(
    pooled: Open,
) -> None:
    store = pooled(False)
    feed = Feed(store)
    session_id = SampleLibrary(store).session()
    try:
        await rings_after_a_commit(feed, store, session_id)
        assert feed.warning is not None
        assert "HOLDFAST_DATABASE_LISTEN_URL" in feed.warning
    finally:
        feed.close()


@pytest.mark.parametrize("direct", [True, False])
def test_statements_work_on_whichever_server_connection_they_reach(
    pooled: Open, direct: bool
) -> None:
    store = pooled(direct)
    session_id = SampleLibrary(store).session()

    def work(number: int) -> None:
        if number % 4 == 0:
            store.write(lambda db: frames.append(db, session_id, ("delta", {"text": "x"})))
        store.read(lambda db: sessions.get(db, session_id))
        store.read(ping)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(work, range(400)))
    assert store.read(lambda db: sessions.get(db, session_id)).frame_seq == 100


def test_a_statement_may_meet_another_server_connection_each_time(pooled: Open) -> None:
    store = pooled(True)
    with ExitStack() as stack:
        connections = [(number, stack.enter_context(store.reader.connect())) for number in range(4)]
        for turn in range(40):
            # All hold a transaction, so each has another server connection than the others.
            for number, connection in connections[turn % 4 :] + connections[: turn % 4]:
                assert connection.exec_driver_sql(f"SELECT {number}").scalar() == number
            for _, connection in reversed(connections):
                connection.commit()


@pytest.mark.parametrize("direct", [True, False])
def test_an_empty_database_is_migrated_behind_a_pooler(
    pooler: PgBouncer, empty_postgres_url: str, tmp_path: Path, direct: bool
) -> None:
    options = PostgresOptions(direct_url=empty_postgres_url if direct else "")
    store = open_store(pooler.url(empty_postgres_url), tmp_path, postgres=options)
    found = store.read(
        lambda db: db.connection().exec_driver_sql("SELECT version_num FROM alembic_version")
    ).scalar_one()
    store.close()
    assert found == REVISION


def test_prepared_statements_are_used_where_there_is_no_pooler(
    postgres_store: OpenStore, pooled: Open
) -> None:
    thresholds = []
    for store in (postgres_store, pooled(True)):
        with store.reader.connect() as connection:
            raw = connection.connection.driver_connection
            assert raw is not None
            thresholds.append(raw.prepare_threshold)
    assert thresholds == [5, None]
