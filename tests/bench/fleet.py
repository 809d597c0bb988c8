"""What an idle fleet asks of Postgres: transactions per second and connections, by the database."""

from __future__ import annotations

import os
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg

from holdfast.settings.environment import Settings
from tests.bench.rounds import TINY
from tests.bench.row import Row
from tests.support.servers.postgres import PostgresCluster
from tests.support.servers.product import HOLDFAST
from tests.support.servers.temporal_server import TemporalServer
from tests.support.waiting import wait_for

WORKERS = 3
SETTLING_S, IDLE_S = (8.0, 5.0) if TINY else (20.0, 60.0)
TRANSACTIONS = "SELECT xact_commit + xact_rollback FROM pg_stat_database WHERE datname = %s"
CONNECTIONS = "SELECT count(*) FROM pg_stat_activity WHERE datname = %s"


def measure() -> list[Row]:
    """Three workers that have nothing to do, on an own Postgres."""
    cluster, temporal = PostgresCluster().start(), TemporalServer().start()
    try:
        with tempfile.TemporaryDirectory(prefix="hf-fleet-") as folder:
            url = cluster.migrated_database(Path(folder) / "template")
            with _workers(url, temporal.address, Path(folder)):
                return _measured(cluster, url)
    finally:
        temporal.stop()
        cluster.stop()


def _measured(cluster: PostgresCluster, url: str) -> list[Row]:
    name = url.rpartition("/")[2]
    with psycopg.connect(cluster.url("postgres"), autocommit=True) as connection:

        def number(query: str) -> int:
            found = connection.execute(query, (name,)).fetchone()
            assert found is not None
            return int(found[0])

        wait_for(lambda: number(CONNECTIONS) >= WORKERS, "the workers to connect")
        time.sleep(SETTLING_S)
        before, began = number(TRANSACTIONS), time.monotonic()
        time.sleep(IDLE_S)
        rate = (number(TRANSACTIONS) - before) / (time.monotonic() - began)
        connections = number(CONNECTIONS)
    what = f"of {WORKERS} idle workers"
    return [
        Row(f"transactions {what}", rate, "per s", goal="≤ 5"),
        Row(f"connections {what}", connections, "", goal=f"≤ {10 * WORKERS}"),
    ]


@contextmanager
def _workers(url: str, temporal: str, folder: Path) -> Iterator[None]:
    kept = {key: value for key, value in os.environ.items() if not key.startswith("HOLDFAST_")}
    started = []
    try:
        for number in range(WORKERS):
            settings = Settings(
                home=folder / f"machine-{number}", database_url=url, temporal_address=temporal
            )
            started.append(
                subprocess.Popen(
                    [HOLDFAST, "worker"],
                    env={**kept, **settings.child_environment()},
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                )
            )
        yield
    finally:
        for child in started:
            child.terminate()
        for child in started:
            child.wait(timeout=60.0)
