"""Stores for integration tests: one suite, both databases."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from holdfast.domain.ids import new_id
from holdfast.settings.config import Config
from holdfast.storage.database.opening import OpenStore, open_store
from tests.support.local_worker import LocalWorker
from tests.support.sample_library import SampleLibrary
from tests.support.servers.api_server import ApiServer, Caller
from tests.support.servers.postgres import PostgresCluster
from tests.support.servers.temporal_server import TemporalServer
from tests.support.servers.terminal_hosts import TestHost


@pytest.fixture(scope="session")
def migrated_home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home whose database has our tables; copying it is quicker than migrating again."""
    home = tmp_path_factory.mktemp("migrated") / "home"
    open_store(None, home).close()
    return home


@pytest.fixture
def sqlite_store(tmp_path: Path, migrated_home: Path) -> Iterator[OpenStore]:
    """A fresh SQLite store."""
    shutil.copytree(migrated_home, tmp_path / "home")
    store = open_store(None, tmp_path / "home", synchronous="OFF")
    yield store
    store.close()


@pytest.fixture
def postgres_store(postgres_url: str, tmp_path: Path) -> Iterator[OpenStore]:
    """A fresh Postgres store."""
    store = open_store(postgres_url, tmp_path / "home-of-postgres")
    yield store
    store.close()


@pytest.fixture(params=["sqlite", "postgres"])
def either_store(request: pytest.FixtureRequest) -> OpenStore:
    """A fresh store of each kind in turn."""
    store: OpenStore = request.getfixturevalue(f"{request.param}_store")
    return store


@pytest.fixture(scope="module")
def shared_postgres_store(
    postgres: PostgresCluster, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[OpenStore]:
    """A Postgres store for all tests of a file: a database of its own costs half a second."""
    home = tmp_path_factory.mktemp("shared-postgres")
    url = postgres.migrated_database(home / "template")
    store = open_store(url, home / "home")
    yield store
    store.close()
    postgres.drop(url)


@pytest.fixture(params=["sqlite", "shared_postgres"])
def library(request: pytest.FixtureRequest) -> SampleLibrary:
    """A fresh operator with a project, on each database in turn."""
    return SampleLibrary(
        request.getfixturevalue(f"{request.param}_store"), f"operator-{new_id().lower()}"
    )


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiServer]:
    """The API over a SQLite store, with doubled workflows; one for all tests of a file."""
    home = tmp_path_factory.mktemp("api-home")
    store = open_store(None, home, synchronous="OFF")
    running = ApiServer(store, home).start()
    yield running
    running.stop()
    store.close()


@pytest.fixture
def own_api(sqlite_store: OpenStore, tmp_path: Path) -> Iterator[ApiServer]:
    """An API that a test may stop or break."""
    running = ApiServer(sqlite_store, tmp_path / "api-home").start()
    yield running
    running.stop()


@pytest.fixture
def caller(api: ApiServer) -> Iterator[Caller]:
    """A fresh operator of the shared API, so that tests never see each other's sessions."""
    found = api.operator()
    yield found
    found.close()


@pytest.fixture(scope="session")
def temporal() -> Iterator[str]:
    """The address of a real Temporal server, one per pytest process."""
    server = TemporalServer().start()
    yield server.address
    server.stop()


@pytest.fixture(scope="session")
def rolling_temporal() -> Iterator[str]:
    """A server that suggests to roll a history over after a few dozen events."""
    server = TemporalServer("limit.historyCount.suggestContinueAsNew=60").start()
    yield server.address
    server.stop()


@pytest.fixture(scope="session")
def spare_host() -> Iterator[TestHost]:
    """A terminal host that the workers share, one per pytest process."""
    with TestHost() as host:
        yield host


@pytest.fixture
async def worker(
    temporal: str, spare_host: TestHost, sqlite_store: OpenStore, tmp_path: Path
) -> AsyncIterator[LocalWorker]:
    """The spine in this process, on a fresh store."""
    async with LocalWorker(sqlite_store, tmp_path, temporal, spare_host, Config()) as running:
        yield running


@pytest.fixture
async def rolling_worker(
    rolling_temporal: str, spare_host: TestHost, sqlite_store: OpenStore, tmp_path: Path
) -> AsyncIterator[LocalWorker]:
    """A worker whose histories roll over early."""
    async with LocalWorker(
        sqlite_store, tmp_path, rolling_temporal, spare_host, Config()
    ) as running:
        yield running


@pytest.fixture
async def postgres_worker(
    temporal: str, spare_host: TestHost, postgres_store: OpenStore, tmp_path: Path
) -> AsyncIterator[LocalWorker]:
    """A worker whose store is Postgres."""
    async with LocalWorker(postgres_store, tmp_path, temporal, spare_host, Config()) as running:
        yield running
