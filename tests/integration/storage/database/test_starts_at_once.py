"""Several processes open an empty Postgres database at once: one migrates, the others find it."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import psycopg

from holdfast.storage.database.opening import MIGRATION_LOCK, REVISION
from tests.support.servers.product import HOLDFAST
from tests.support.waiting import wait_for

PROCESSES = 4
WAITING = (
    "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted AND database ="
    " (SELECT oid FROM pg_database WHERE datname = current_database())"
)


def start(url: str, home: Path) -> subprocess.Popen[bytes]:
    kept = {key: value for key, value in os.environ.items() if not key.startswith("HOLDFAST_")}
    return subprocess.Popen(
        [HOLDFAST, "token"],
        env={**kept, "HOLDFAST_DATABASE_URL": url, "HOLDFAST_HOME": str(home)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def test_processes_that_open_an_empty_database_at_once_all_start(
    empty_postgres_url: str, tmp_path: Path
) -> None:
    with psycopg.connect(empty_postgres_url, autocommit=True) as connection:
        connection.execute("SELECT pg_advisory_lock(%s)", (MIGRATION_LOCK,))
        started = [
            start(empty_postgres_url, tmp_path / f"machine-{number}") for number in range(PROCESSES)
        ]
        # Each has seen an empty database by now.
        wait_for(
            lambda: connection.execute(WAITING).fetchone() == (PROCESSES,),
            "all to wait for the migration",
        )
        connection.execute("SELECT pg_advisory_unlock(%s)", (MIGRATION_LOCK,))
        for process in started:
            _, said = process.communicate(timeout=120.0)
            assert process.returncode == 0, said.decode()
        assert connection.execute("SELECT version_num FROM alembic_version").fetchall() == [
            (REVISION,)
        ]
        assert connection.execute("SELECT name FROM operators").fetchall() == [("local",)]
