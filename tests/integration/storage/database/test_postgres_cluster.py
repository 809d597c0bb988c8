"""The Postgres of the tests starts, and gives each test a database of its own."""

from __future__ import annotations

import psycopg


def test_each_test_gets_a_migrated_database(postgres_url: str) -> None:
    with psycopg.connect(postgres_url) as connection:
        found = connection.execute("SELECT count(*) FROM sessions").fetchone()
    assert found == (0,)


def test_an_empty_database_has_no_tables(empty_postgres_url: str) -> None:
    with psycopg.connect(empty_postgres_url) as connection:
        found = connection.execute(
            "SELECT count(*) FROM information_schema.tables WHERE table_schema = 'public'"
        ).fetchone()
    assert found == (0,)
