"""What every test may ask for: the running product, an operator, the stub, Postgres."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx2
import pytest
from hypothesis import HealthCheck, settings

from holdfast import AsyncClient, Client
from tests.stub.openai_stub import OpenAIStub
from tests.support.blocking_client import blocking
from tests.support.servers.object_store import ObjectStore
from tests.support.servers.pgbouncer import PgBouncer, PgBouncerMissing
from tests.support.servers.postgres import LASTING, PostgresCluster, PostgresMissing
from tests.support.servers.product import Product

# The same examples at every run of `make test`; new and many of them in `make torture`.
FUZZ_EXAMPLES = os.environ.get("HOLDFAST_FUZZ_EXAMPLES", "")
# Slow drawing says how busy the machine is, nothing about what is tested; and the fixtures of our
# fuzzers are servers, which all examples may share.
NO_CLOCK: dict[str, Any] = {
    "deadline": None,
    "database": None,
    "suppress_health_check": [HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
}
settings.register_profile("fixed", derandomize=True, **NO_CLOCK)
settings.register_profile(
    "long", max_examples=int(FUZZ_EXAMPLES or 100), print_blob=True, **NO_CLOCK
)
settings.load_profile("long" if FUZZ_EXAMPLES else "fixed")

# In the environment of the shared product, as an operator's would be; no call uses it.
PROVIDER_KEY = "sk-key-of-a-provider-that-nobody-asks"
CONFIG = """
[providers.stub]
driver = "openai"
base_url = "{base_url}"
api_key = "test"
context_window = 100000

[aliases]
default = "stub:stub-1"
demo = "scripted:demo"
"""


@dataclass(frozen=True)
class Account:
    """An operator and its bearer token."""

    name: str
    token: str


@pytest.fixture(scope="session")
def stub_server() -> Iterator[OpenAIStub]:
    """The OpenAI-compatible stub that the shared product's provider `stub` points at."""
    with OpenAIStub() as stub:
        yield stub


@pytest.fixture
def stub(stub_server: OpenAIStub) -> Iterator[OpenAIStub]:
    """The stub without the requests of earlier tests; answers nobody asked for go with the test."""
    stub_server.requests.clear()
    stub_server._queue.clear()
    stub_server.embeddings.reset()
    yield stub_server
    stub_server.embeddings.reset()
    stub_server._queue.clear()


@pytest.fixture(scope="session")
def product_config(stub_server: OpenAIStub) -> str:
    """A config.toml with the stub as `default` and the keyless demo as `demo`."""
    return CONFIG.format(base_url=stub_server.base_url)


@pytest.fixture(scope="session")
def shared_product(product_config: str) -> Iterator[Product]:
    """The real product, one per pytest process."""
    product = Product(config=product_config, environment={"OPENAI_API_KEY": PROVIDER_KEY})
    try:
        yield product.start()
    finally:
        product.close()


@pytest.fixture
def product(shared_product: Product) -> Product:
    """The shared product, ready. A test may kill its parts, for no other test runs meanwhile."""
    if not shared_product.is_ready():
        if shared_product.process is None:
            shared_product.start()
        shared_product.wait_until_ready()
    return shared_product


@pytest.fixture
def operator(product: Product) -> Account:
    """A fresh operator, so that tests never see each other's sessions."""
    name = f"test-{uuid4().hex[:12]}"
    return Account(name, product.add_operator(name))


@pytest.fixture
def client(product: Product, operator: Account) -> Iterator[httpx2.Client]:
    """An HTTP client of that operator; paths begin below /api/v1."""
    with product.api(operator.token) as client:
        yield client


@pytest.fixture(params=["Client", "AsyncClient"])
def open_client(request: pytest.FixtureRequest) -> Iterator[Callable[[str, str], Client]]:
    """Makes Client in one run of a test and AsyncClient, made to block, in the other."""
    opened: list[Client] = []
    with asyncio.Runner() as runner:

        def open_one(url: str, token: str) -> Client:
            make = Client if request.param == "Client" else AsyncClient
            client = make(url, token)
            opened.append(client if isinstance(client, Client) else blocking(client, runner))
            return opened[-1]

        yield open_one
        for client in opened:
            client.close()


@pytest.fixture
def make_project(client: httpx2.Client, tmp_path: Path) -> Callable[..., dict[str, Any]]:
    """Makes and loads a folder; a `project_file` in YAML is optional."""

    def make(project_file: str = "", *, name: str = "") -> dict[str, Any]:
        folder = tmp_path / (name or f"project-{uuid4().hex[:8]}")
        folder.mkdir()
        if project_file:
            (folder / ".holdfast").mkdir()
            (folder / ".holdfast" / "project.yaml").write_text(project_file, encoding="utf-8")
        answer = client.post("/projects/load", json={"path": str(folder), "trust": True})
        assert answer.status_code in {200, 201}, answer.text
        project: dict[str, Any] = answer.json()
        return project

    return make


@pytest.fixture
def project(make_project: Callable[..., dict[str, Any]]) -> dict[str, Any]:
    """A fresh folder, loaded as a project with the defaults."""
    return make_project()


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresCluster]:
    """A Postgres cluster, one per pytest process; skipped only where it cannot be installed."""
    try:
        cluster = PostgresCluster().start()
    except PostgresMissing as error:
        pytest.skip(str(error))
    yield cluster
    cluster.stop()


@pytest.fixture
def postgres_url(
    postgres: PostgresCluster, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    """A fresh database with our tables, dropped afterwards."""
    url = postgres.migrated_database(tmp_path_factory.mktemp("template"))
    yield url
    postgres.drop(url)


@pytest.fixture(scope="module")
def own_postgres() -> Iterator[PostgresCluster]:
    """A cluster that the tests of a file may stop, kill and start again."""
    try:
        cluster = PostgresCluster(*LASTING).start()
    except PostgresMissing as error:
        pytest.skip(str(error))
    yield cluster
    cluster.stop()


@pytest.fixture
def mortal_postgres(
    own_postgres: PostgresCluster, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[PostgresCluster, str]]:
    """That cluster, and a fresh database in it with our tables; it runs again after the test."""
    url = own_postgres.migrated_database(tmp_path_factory.mktemp("template"))
    yield own_postgres, url
    if own_postgres.server is None:
        own_postgres.serve()
    own_postgres.drop(url)


@pytest.fixture(scope="session")
def object_server() -> Iterator[ObjectStore]:
    """An S3 server, one per pytest process."""
    server = ObjectStore().start()
    yield server
    server.stop()


@pytest.fixture
def object_store(
    object_server: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> Iterator[ObjectStore]:
    """That server without faults; the standard variables lead to it."""
    for name, value in object_server.environment.items():
        monkeypatch.setenv(name, value)
    object_server.unavailable.clear()
    object_server.lost = 0
    object_server.requests.clear()
    yield object_server
    object_server.unavailable.clear()


@pytest.fixture
def pooler(postgres: PostgresCluster) -> Iterator[PgBouncer]:
    """A transaction pooler in front of the shared cluster."""
    try:
        running = PgBouncer(postgres.port).start()
    except PgBouncerMissing as error:
        pytest.skip(str(error))
    yield running
    running.stop()


@pytest.fixture
def empty_postgres_url(postgres: PostgresCluster) -> Iterator[str]:
    """A fresh database without any table, dropped afterwards."""
    url = postgres.empty_database()
    yield url
    postgres.drop(url)
