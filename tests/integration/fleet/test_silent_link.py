"""A link whose network falls silent: nobody hangs on it, and it works again when it is healed."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from holdfast.domain.ids import new_id
from holdfast.fleet import authority
from holdfast.selftest.fleet.network import CLIENTS, Network, make_network
from holdfast.terminal import remote, tls
from holdfast.terminal.client import SpawnRequest
from holdfast.terminal.errors import HostLost, HostUnavailable
from holdfast.terminal.remote import RemoteTerminalClient
from tests.integration.fleet.test_link import API, answers, certify
from tests.support.servers.terminal_hosts import TestHost, eventually

PORT = 28431
# Beside the time that is promised: a busy machine.
SLACK_S = 25.0


@pytest.fixture
def network() -> Iterator[Network]:
    made = make_network()
    if not made.can_cut:
        pytest.skip(made.words)
    yield made
    made.close()


@pytest.fixture
def caller(network: Network, tmp_path: Path) -> Iterator[RemoteTerminalClient]:
    """A client here of a host on another machine."""
    place, host_id = network.join("far"), new_id()
    authority.make(tmp_path / "ca")
    folder = certify(tmp_path / "ca", tmp_path / "host", host_id, "host")
    api = certify(tmp_path / "ca", tmp_path / "api", API, "caller")
    address = f"{place.address}:{PORT}"
    given = {"HOLDFAST_HOST_LISTEN": address, "HOLDFAST_FLEET_DIR": str(folder)}
    with TestHost(*place.prefix, **given, HOLDFAST_HOME=""):
        yield RemoteTerminalClient(address, host_id, api)


async def test_a_silent_cut_ends_what_waits_and_what_asks_within_seconds(
    network: Network, caller: RemoteTerminalClient, tmp_path: Path
) -> None:
    async with caller:
        await eventually(lambda: answers(caller), "the link")
        sleeper = SpawnRequest(
            key="sleeper", session_id="session", command="sleep 1000", cwd=str(tmp_path)
        )
        await caller.spawn(sleeper)
        idle = asyncio.create_task(caller.wait("sleeper"))
        await caller.host()
        began = time.monotonic()
        network.cut("far", CLIENTS)
        with pytest.raises((HostLost, HostUnavailable)):
            await caller.host()
        assert time.monotonic() - began < tls.SILENCE_S + SLACK_S
        with pytest.raises((HostLost, HostUnavailable)):
            await idle
        assert time.monotonic() - began < tls.SILENCE_S + SLACK_S
        assert not await answers(caller)
        assert time.monotonic() - began < tls.SILENCE_S + tls.DIAL_TIMEOUT_S + SLACK_S
        network.heal()
        await eventually(lambda: answers(caller), "the healed link")
        await caller.kill("sleeper", grace_s=0.0)


async def test_those_who_wait_for_a_dial_share_its_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tls, "DIAL_TIMEOUT_S", 2.0)
    authority.make(tmp_path / "ca")
    api = certify(tmp_path / "ca", tmp_path / "api", API, "caller")
    dials = 0
    real = tls.dial

    async def counted(*given: Any) -> Any:
        nonlocal dials
        dials += 1
        return await real(*given)

    monkeypatch.setattr(remote, "dial", counted)
    # It takes connections, and says nothing to them.
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        async with RemoteTerminalClient(f"127.0.0.1:{port}", new_id(), api) as client:
            asked = [asyncio.create_task(client.host()) for _ in range(20)]
            found = await asyncio.gather(*asked, return_exceptions=True)
    assert [type(one) for one in found] == [HostUnavailable] * 20
    assert "does not answer: it is silent" in str(found[0])
    assert dials == 1
