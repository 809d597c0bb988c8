"""An SQLite that can damage its file is said to be one, wherever an operator looks."""

from __future__ import annotations

import sqlite3

import pytest

from api.routes.operating import health
from holdfast.storage.database import sqlite_driver
from holdfast.storage.database.opening import OpenStore
from holdfast.storage.database.sqlite_driver import is_safe
from holdfast.storage.upkeep import consistency
from holdfast.supervisor import readiness
from tests.support.servers.api_server import ApiServer


@pytest.fixture
def old_sqlite(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a machine that has no wheel of pysqlite3."""
    monkeypatch.setattr(sqlite3, "sqlite_version_info", (3, 40, 1))
    monkeypatch.setattr(sqlite3, "sqlite_version", "3.40.1")
    monkeypatch.setattr(sqlite_driver, "dbapi_module", lambda: sqlite3)


@pytest.mark.parametrize(
    ("version", "safe"),
    [
        ((3, 40, 1), False),
        ((3, 51, 2), False),
        ((3, 51, 3), True),
        ((3, 52, 0), False),
        ((3, 53, 0), True),
        ((4, 0, 0), True),
    ],
)
def test_the_bug_is_mended_in_two_lines_of_versions(version: tuple[int, ...], safe: bool) -> None:
    assert is_safe(version) is safe


@pytest.mark.usefixtures("old_sqlite")
def test_the_doctor_warns_once_and_calls_the_store_sound_all_the_same(
    sqlite_store: OpenStore,
) -> None:
    report = consistency.check(sqlite_store, "quick").view()
    assert report["status"] == "ok"
    [warning] = report["warnings"]
    assert "SQLite 3.40.1 has a bug" in warning
    assert "pysqlite3" in warning


def test_what_we_ship_needs_no_warning(sqlite_store: OpenStore) -> None:
    assert consistency.check(sqlite_store, "quick").view()["warnings"] == []


@pytest.mark.usefixtures("old_sqlite")
def test_readiness_tells_the_supervisor(
    own_api: ApiServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def nothing(_services: object) -> dict[str, str]:
        return {}

    monkeypatch.setattr(health, "_trouble", nothing)
    assert readiness.is_ready(own_api.url)
    [warning] = readiness.warnings(own_api.url)
    assert "3.40.1" in warning


@pytest.mark.usefixtures("old_sqlite")
def test_postgres_has_nothing_to_do_with_it(shared_postgres_store: OpenStore) -> None:
    assert shared_postgres_store.warnings() == []
