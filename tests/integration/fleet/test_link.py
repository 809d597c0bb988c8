"""A terminal host called from another machine: by certificate of its fleet, and by nobody else."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from holdfast.domain.ids import new_id
from holdfast.fleet import authority
from holdfast.fleet.authority import Role
from holdfast.supervisor import ports
from holdfast.terminal import tls
from holdfast.terminal.client import ProcessState, TerminalClient
from holdfast.terminal.errors import BadRequest, HostLost, HostUnavailable
from holdfast.terminal.protocol import FrameType, encode_json
from holdfast.terminal.remote import RemoteTerminalClient
from holdfast.terminal.showing import transcript_copy
from holdfast.terminal.transcript import read_raw
from tests.support.servers.terminal_hosts import TestHost, collect, eventually

API = "01JAPIAPIAPIAPIAPIAPIAPIAP"


def certify(fleet: Path, folder: Path, machine_id: str, *roles: Role) -> Path:
    """A machine's folder: its key, its certificate, and the authority's certificate."""
    authority.issue(fleet, folder, machine_id, roles)
    return folder


@dataclass
class Fleet:
    """An authority, a host that listens for other machines, and an API's certificate."""

    folder: Path
    host: TestHost
    host_id: str
    address: str
    api: Path

    def client(self, folder: Path | None = None, *, host_id: str = "") -> RemoteTerminalClient:
        return RemoteTerminalClient(self.address, host_id or self.host_id, folder or self.api)


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    folder = tmp_path_factory.mktemp("fleet")
    authority.make(folder / "ca")
    address = f"127.0.0.1:{ports.free_port()}"
    host = TestHost(
        HOLDFAST_HOST_LISTEN=address, HOLDFAST_FLEET_DIR=str(folder / "host"), HOLDFAST_HOME=""
    )
    host_id = new_id()
    certify(folder / "ca", folder / "host", host_id, "host")
    api = certify(folder / "ca", folder / "api", API, "caller")
    with host:
        yield Fleet(folder, host, host_id, address, api)


@pytest.fixture
async def client(fleet: Fleet) -> AsyncIterator[TerminalClient]:
    async with fleet.client() as found:
        await eventually(lambda: answers(found), "the TLS listener")
        yield found


async def answers(client: TerminalClient) -> bool:
    try:
        return bool(await client.host())
    except (HostUnavailable, HostLost):
        return False


async def test_a_terminal_is_used_from_another_machine(
    fleet: Fleet, client: TerminalClient
) -> None:
    await client.spawn(fleet.host.request("far", "read x; stty size; echo got-$x", terminal=True))
    async with await client.attach("far", role="writer") as attachment:
        await client.resize("far", cols=91, rows=31)
        await client.suspend(key="far")
        assert (await client.info("far")).state is ProcessState.SUSPENDED
        await client.resume(key="far")
        await attachment.write(b"hello\r")
        assert (await client.wait("far")).code == 0
    shown = await collect(client, "far")
    assert b"31 91" in shown
    async with transcript_copy(client, "far") as path:
        assert read_raw(path) == shown


async def test_many_bytes_come_whole_and_in_order(fleet: Fleet, client: TerminalClient) -> None:
    await client.spawn(fleet.host.request("flood", "seq 1 300000"))
    expected = b"".join(b"%d\n" % number for number in range(1, 300_001))
    assert await collect(client, "flood") == expected


async def test_only_its_own_machine_ends_a_host(fleet: Fleet, client: TerminalClient) -> None:
    with pytest.raises(BadRequest, match="only its own machine"):
        await client.shutdown(force=True)
    assert not fleet.host.is_over()


@pytest.mark.usefixtures("client")
async def test_the_certificate_of_another_fleet_gets_nothing(fleet: Fleet, tmp_path: Path) -> None:
    authority.make(tmp_path / "other")
    stranger = certify(tmp_path / "other", tmp_path / "stranger", API, "caller")
    # It trusts our authority, so that only the host's judgement is left.
    (stranger / tls.CA).write_bytes((fleet.folder / "ca" / authority.CA).read_bytes())
    assert not await answers(fleet.client(stranger))


@pytest.mark.usefixtures("client")
async def test_a_host_cannot_call_another_host(fleet: Fleet) -> None:
    assert not await answers(fleet.client(fleet.folder / "host"))


@pytest.mark.usefixtures("client")
async def test_a_caller_without_a_certificate_gets_nothing(fleet: Fleet) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.load_verify_locations(fleet.folder / "ca" / authority.CA)
    host, _, port = fleet.address.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port), ssl=context)
    answer = b""
    # TLS 1.3 tells of the refusal with an alert or with the end, after the handshake.
    with contextlib.suppress(ssl.SSLError, ConnectionError):
        writer.write(encode_json(FrameType.REQUEST, 0, {"id": 1, "op": "hello", "versions": [1]}))
        answer = await reader.read(1)
    assert answer == b""
    writer.close()


@pytest.mark.usefixtures("client")
async def test_whoever_answers_must_be_the_machine_that_was_meant(fleet: Fleet) -> None:
    assert not await answers(fleet.client(host_id="01JSOMEBODYELSESOMEBODYEL"))


async def test_a_revoked_caller_is_cut_off_and_refused(
    fleet: Fleet, client: TerminalClient
) -> None:
    doomed_id = "01JD00MEDD00MEDD00MEDD00ME"
    doomed = certify(fleet.folder / "ca", fleet.folder / "doomed", doomed_id, "caller")
    async with fleet.client(doomed) as linked:
        assert await answers(linked)
        await client.spawn(fleet.host.request("forever", "sleep 1000"))
        waiting = asyncio.create_task(linked.wait("forever"))
        (fleet.folder / "host" / tls.REVOKED).write_text(f"{doomed_id}\n")
        with pytest.raises(HostLost):
            await waiting
        await eventually(lambda: refused(linked), "the refusal")
    assert await answers(client)
    await client.kill("forever", grace_s=0)


async def refused(client: TerminalClient) -> bool:
    return not await answers(client)


async def test_a_renewed_certificate_is_shown_without_a_restart(
    fleet: Fleet, client: TerminalClient
) -> None:
    before = await shown_serial(fleet)
    certify(fleet.folder / "ca", fleet.folder / "host", fleet.host_id, "host")

    async def is_new() -> bool:
        return await shown_serial(fleet) != before

    await eventually(is_new, "the new certificate")
    assert await answers(client)


async def shown_serial(fleet: Fleet) -> str:
    reader, writer = await tls.dial(fleet.address, fleet.host_id, fleet.api)
    certificate = writer.get_extra_info("peercert")
    writer.close()
    assert reader is not None
    return str(certificate["serialNumber"])
