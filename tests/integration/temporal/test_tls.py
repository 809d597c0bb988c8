"""A Temporal service elsewhere: TLS, certificates and keys by Temporal's own variables."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import trustme

from holdfast.settings.environment import Settings
from holdfast.settings.temporal_variables import external_service
from holdfast.temporal.connection import connect, connect_patiently

NAME = "temporal.fleet.test"


@contextlib.asynccontextmanager
async def behind_tls(address: str, ca: trustme.CA) -> AsyncIterator[str]:
    """The plain server as mutual TLS shows it; a stranger without a certificate gets nothing."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.set_alpn_protocols(["h2"])
    context.verify_mode = ssl.CERT_REQUIRED
    ca.configure_trust(context)
    ca.issue_cert(NAME).configure_cert(context)
    host, _, port = address.rpartition(":")
    pumps: set[asyncio.Task[None]] = set()

    async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError), contextlib.closing(writer):
            while data := await reader.read(65536):
                writer.write(data)
                await writer.drain()

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there_reader, there_writer = await asyncio.open_connection(host, int(port))
        pumps.add(asyncio.create_task(pump(reader, there_writer)))
        pumps.add(asyncio.create_task(pump(there_reader, writer)))

    server = await asyncio.start_server(accept, "127.0.0.1", 0, ssl=context)
    try:
        yield f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()
        for task in pumps:
            task.cancel()
        await asyncio.gather(*pumps, return_exceptions=True)


@pytest.fixture
def ca(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> trustme.CA:
    """An authority, with the variables that a worker of its fleet has."""
    made = trustme.CA()
    made.cert_pem.write_to_path(tmp_path / "ca.pem")
    issued = made.issue_cert("worker.fleet.test")
    issued.private_key_pem.write_to_path(tmp_path / "key.pem")
    issued.cert_chain_pems[0].write_to_path(tmp_path / "cert.pem")
    monkeypatch.setenv("TEMPORAL_TLS_SERVER_CA_CERT_PATH", str(tmp_path / "ca.pem"))
    monkeypatch.setenv("TEMPORAL_TLS_CLIENT_CERT_PATH", str(tmp_path / "cert.pem"))
    monkeypatch.setenv("TEMPORAL_TLS_CLIENT_KEY_PATH", str(tmp_path / "key.pem"))
    monkeypatch.setenv("TEMPORAL_TLS_SERVER_NAME", NAME)
    return made


def settings(home: Path, **values: str) -> Settings:
    return Settings(home=home, **values)  # type: ignore[arg-type]


async def test_temporals_own_variables_lead_to_a_service_with_certificates(
    temporal: str, ca: trustme.CA, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with behind_tls(temporal, ca) as address:
        monkeypatch.setenv("TEMPORAL_ADDRESS", address)
        found = settings(tmp_path)
        assert (found.temporal_address, found.temporal_embedded) == (address, False)
        client = await connect(found)
        assert await client.service_client.check_health()


async def test_without_a_certificate_there_is_no_connection(
    temporal: str, ca: trustme.CA, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TEMPORAL_TLS_CLIENT_CERT_PATH")
    monkeypatch.delenv("TEMPORAL_TLS_CLIENT_KEY_PATH")
    async with behind_tls(temporal, ca) as address:
        with pytest.raises(RuntimeError):
            await connect(settings(tmp_path, temporal_address=address))


async def test_a_worker_that_waits_says_that_it_is_the_certificate(
    temporal: str,
    ca: trustme.CA,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("TEMPORAL_TLS_SERVER_NAME", "somebody.else.test")
    stopped = asyncio.Event()
    async with behind_tls(temporal, ca) as address:
        waiting = asyncio.create_task(
            connect_patiently(settings(tmp_path, temporal_address=address), stopped)
        )
        said = ""
        while "ertificate" not in said:
            await asyncio.sleep(0.02)
            said += capsys.readouterr().out
        stopped.set()
        assert await waiting is None


async def test_the_embedded_server_is_reached_plainly_whatever_the_variables_say(
    temporal: str, ca: trustme.CA, tmp_path: Path
) -> None:
    found = settings(tmp_path, temporal_address=temporal, temporal_embedded="true")
    client = await connect(found)
    assert await client.service_client.check_health()


def test_our_own_variable_wins_over_temporals(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TEMPORAL_ADDRESS", "theirs:7233")
    monkeypatch.setenv("TEMPORAL_NAMESPACE", "theirs")
    assert settings(tmp_path, temporal_address="ours:7233").temporal_address == "ours:7233"
    assert settings(tmp_path).temporal_namespace == "theirs"
    assert settings(tmp_path, temporal_namespace="ours").temporal_namespace == "ours"


def test_a_profile_of_the_config_file_counts_when_it_is_named(tmp_path: Path) -> None:
    file = tmp_path / "temporalio" / "temporal.toml"
    file.parent.mkdir()
    file.write_text('[profile.fleet]\naddress = "fleet:7233"\nnamespace = "agents"\n')
    unnamed = {"XDG_CONFIG_HOME": str(tmp_path)}
    assert external_service(unnamed) == {}
    named = {**unnamed, "TEMPORAL_PROFILE": "fleet"}
    assert external_service(named) == {"address": "fleet:7233", "namespace": "agents"}
    elsewhere = {"TEMPORAL_CONFIG_FILE": str(file), "TEMPORAL_PROFILE": "missing"}
    with pytest.raises(ValueError, match="there is no profile 'missing'"):
        external_service(elsewhere)
