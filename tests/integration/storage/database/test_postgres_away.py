"""A Postgres that is away: waited for at the start, refused only where waiting does not help."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import pytest
import structlog

from holdfast.domain.errors import Unavailable
from holdfast.storage.database.engine import ping
from holdfast.storage.database.opening import OpenStore, open_store
from holdfast.storage.database.patience import open_patiently, open_until
from holdfast.storage.database.trouble import StoreAway, StoreRefused
from tests.support.servers.postgres import PostgresCluster
from tests.support.waiting import wait_for

Mortal = tuple[PostgresCluster, str]


def test_a_database_that_is_away_at_the_start_is_waited_for(
    mortal_postgres: Mortal, tmp_path: Path
) -> None:
    cluster, url = mortal_postgres
    cluster.kill()
    opened: list[OpenStore] = []
    with structlog.testing.capture_logs() as logs:
        thread = threading.Thread(
            target=lambda: opened.append(open_patiently(lambda: open_store(url, tmp_path)))
        )
        thread.start()
        wait_for(lambda: len(logs) >= 2, "two words in the log")
        assert thread.is_alive()
        cluster.serve()
        thread.join(timeout=60.0)
    (store,) = opened
    assert store.read(lambda db: ping(db)) is None
    store.close()
    assert {entry["event"] for entry in logs} == {"store.waiting_for_database"}
    assert "does not answer" in logs[0]["reason"]
    assert logs[1]["again_in_s"] > logs[0]["again_in_s"]


def test_a_command_gives_up_waiting_in_words(mortal_postgres: Mortal, tmp_path: Path) -> None:
    cluster, url = mortal_postgres
    cluster.halt()
    with pytest.raises(StoreAway, match="does not answer"):
        open_patiently(lambda: open_store(url, tmp_path), patience_s=0.5)


async def test_a_worker_that_is_stopped_while_it_waits_ends(
    mortal_postgres: Mortal, tmp_path: Path
) -> None:
    cluster, url = mortal_postgres
    cluster.halt()
    stopped = asyncio.Event()
    waiting = asyncio.create_task(open_until(stopped, lambda: open_store(url, tmp_path)))
    await asyncio.sleep(0)
    stopped.set()
    assert await waiting is None


@pytest.mark.parametrize(
    ("user", "database", "words"),
    [("postgres", "nowhere", "nowhere"), ("nobody", "postgres", "nobody")],
)
def test_an_address_that_no_waiting_mends_is_refused_in_words(
    postgres: PostgresCluster, tmp_path: Path, user: str, database: str, words: str
) -> None:
    url = f"postgresql://{user}@127.0.0.1:{postgres.port}/{database}"
    with pytest.raises(StoreRefused, match=words) as refused:
        open_patiently(lambda: open_store(url, tmp_path))
    assert "HOLDFAST_DATABASE_URL" in str(refused.value)
    assert "backup" not in str(refused.value)


@pytest.mark.parametrize("end", ["halt", "kill"])
def test_a_store_answers_unavailable_while_postgres_is_away_and_then_works_again(
    mortal_postgres: Mortal, tmp_path: Path, end: str
) -> None:
    cluster, url = mortal_postgres
    store = open_store(url, tmp_path)
    try:
        store.read(ping)
        getattr(cluster, end)()
        for attempt in (store.read, store.write):
            with pytest.raises(Unavailable, match="does not answer"):
                attempt(ping)
        cluster.serve()

        def answers() -> bool:
            try:
                store.write(ping)
            except StoreAway:
                return False
            return True

        wait_for(answers, "the store to work again", timeout_s=10.0)
        store.read(ping)
    finally:
        store.close()


def test_a_short_restart_is_not_noticed(mortal_postgres: Mortal, tmp_path: Path) -> None:
    cluster, url = mortal_postgres
    store = open_store(url, tmp_path)
    try:
        store.read(ping)
        cluster.halt()
        cluster.serve()
        # The pool's connections are all broken: each is replaced without anybody being told.
        store.read(ping)
        store.write(ping)
    finally:
        store.close()
