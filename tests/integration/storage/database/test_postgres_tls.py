"""TLS to Postgres by the parameters of its URL: the certificate is verified, or nothing is said."""

from __future__ import annotations

import os
import pwd
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
import trustme

from holdfast.domain.errors import Unavailable
from holdfast.settings.environment import Settings
from holdfast.storage.database.opening import open_store
from holdfast.storage.database.postgres import (
    LOCK_TIMEOUT_S,
    PostgresOptions,
    connect_directly,
)
from holdfast.storage.database.trouble import StoreBusy, StoreRefused
from tests.support.servers.postgres import PostgresCluster, PostgresMissing


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture(scope="module")
def cluster(
    authority: trustme.CA, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[PostgresCluster]:
    """A Postgres with a certificate for `localhost`."""
    made = PostgresCluster()
    server = authority.issue_cert("localhost")
    key, certificate = made.folder / "key.pem", made.folder / "certificate.pem"
    server.private_key_pem.write_to_path(key)
    server.cert_chain_pems[0].write_to_path(certificate)
    key.chmod(0o600)
    if os.getuid() == 0:
        owner = pwd.getpwnam("postgres")
        for path in (key, certificate):
            os.chown(path, owner.pw_uid, owner.pw_gid)
    made.settings = ("ssl=on", f"ssl_key_file={key}", f"ssl_cert_file={certificate}")
    try:
        yield made.start()
    except PostgresMissing as error:
        pytest.skip(str(error))
    made.stop()


def url(cluster: PostgresCluster, host: str, root: Path) -> str:
    database = cluster.empty_database().rpartition("/")[2]
    return (
        f"postgresql://postgres@{host}:{cluster.port}/{database}"
        f"?sslmode=verify-full&sslrootcert={root}"
    )


def test_a_verified_certificate_is_used_by_every_kind_of_connection(
    cluster: PostgresCluster, authority: trustme.CA, tmp_path: Path
) -> None:
    root = tmp_path / "root.pem"
    authority.cert_pem.write_to_path(root)
    address = url(cluster, "localhost", root)
    store = open_store(address, tmp_path / "home", postgres=PostgresOptions(direct_url=address))
    used = "SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()"
    pooled = store.read(lambda db: db.connection().exec_driver_sql(used).scalar())
    with connect_directly(store.direct_url) as raw:
        assert (pooled, raw.execute(used).fetchone()) == (True, (True,))
    store.close()


@pytest.mark.parametrize("stranger", ["authority", "name"])
def test_a_certificate_that_cannot_be_verified_is_refused_in_words(
    cluster: PostgresCluster, authority: trustme.CA, tmp_path: Path, stranger: str
) -> None:
    root = tmp_path / "root.pem"
    (trustme.CA() if stranger == "authority" else authority).cert_pem.write_to_path(root)
    host = "127.0.0.1" if stranger == "name" else "localhost"
    with pytest.raises(StoreRefused, match="certificate"):
        open_store(url(cluster, host, root), tmp_path / "home")


def test_the_limits_of_a_connection_are_set(postgres_url: str, tmp_path: Path) -> None:
    settings = Settings(
        home=tmp_path,
        database_url=postgres_url,
        database_pool_size=2,
        database_statement_timeout_s=1,
    )
    store = open_store(postgres_url, tmp_path, postgres=PostgresOptions.of(settings))
    try:
        shown = store.read(lambda db: db.connection().exec_driver_sql("SHOW lock_timeout").scalar())
        assert shown == f"{LOCK_TIMEOUT_S}s"
        with pytest.raises(StoreBusy, match="too long"):
            store.read(lambda db: db.connection().exec_driver_sql("SELECT pg_sleep(30)"))
        assert store.reader.pool.size() == 2  # type: ignore[attr-defined]
    finally:
        store.close()


def test_a_pool_never_has_more_connections_than_it_may(postgres_url: str, tmp_path: Path) -> None:
    store = open_store(postgres_url, tmp_path, postgres=PostgresOptions(pool_size=2))
    store.reader.pool._timeout = 0.2  # type: ignore[attr-defined]
    try:
        with store.reader.connect(), store.reader.connect(), pytest.raises(Unavailable):
            store.read(lambda db: db.connection().exec_driver_sql("SELECT 1"))
    finally:
        store.close()


def test_a_server_that_says_nothing_is_given_up_within_the_time_of_the_url(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        address = f"postgresql://postgres@127.0.0.1:{port}/any?connect_timeout=2"
        with pytest.raises(Unavailable, match="does not answer"):
            open_store(address, tmp_path)
