"""An API on another machine than the terminal: opened, typed into, resized, read and closed."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from holdfast.domain.ids import new_id
from holdfast.fleet import authority
from holdfast.storage.database.opening import OpenStore, open_store
from holdfast.storage.hosts import hosts
from holdfast.supervisor import ports
from holdfast.terminal.remote import RemoteTerminalClient
from tests.integration.fleet.test_link import API, answers, certify
from tests.support.servers.api_server import ApiServer, Caller, hear, hear_until, say
from tests.support.servers.terminal_hosts import TestHost, eventually


@pytest.fixture
def store(tmp_path: Path) -> Iterator[OpenStore]:
    (tmp_path / "home").mkdir()
    found = open_store(f"sqlite:///{tmp_path / 'home' / 'store.sqlite'}", tmp_path / "home")
    yield found
    found.close()


@pytest.fixture
def far_host(tmp_path: Path, store: OpenStore) -> Iterator[str]:
    """A host that only its TLS link leads to, as its worker registered it; its id."""
    authority.make(tmp_path / "ca")
    address = f"127.0.0.1:{ports.free_port()}"
    folder = tmp_path / "host"
    host = TestHost(HOLDFAST_HOST_LISTEN=address, HOLDFAST_FLEET_DIR=str(folder))
    host_id = new_id()
    certify(tmp_path / "ca", folder, host_id, "host")
    api = certify(tmp_path / "ca", tmp_path / "home" / "fleet", API, "caller")
    seen = hosts.Seen(host_id, "far", 1, address, "queue", "1")
    store.write(lambda db: hosts.register(db, seen))

    async def listening() -> None:
        async with RemoteTerminalClient(address, host_id, api) as client:
            await eventually(lambda: answers(client), "the TLS listener")

    with host:
        asyncio.run(listening())
        yield host_id


@pytest.fixture
def caller(store: OpenStore, tmp_path: Path, far_host: str) -> Iterator[Caller]:
    server = ApiServer(store, tmp_path / "home").start()
    found = server.operator()
    yield found
    found.close()
    server.stop()


@pytest.fixture
def session_id(caller: Caller, tmp_path: Path) -> str:
    text = "version: 1\nproject: far\nprimary: {cage: disabled}\n"
    project = caller.project(tmp_path / "work", text)
    return str(caller.session(project["id"])["id"])


def opened(caller: Caller, session_id: str, command: str) -> str:
    answer = caller.http.post(f"/sessions/{session_id}/ptys", json={"command": command})
    assert answer.status_code == 201, answer.text
    return str(answer.json()["pty_id"])


def typed(frames: list[dict[str, Any]]) -> bytes:
    shown = [one["payload"]["data"] for one in frames if one["type"] in ("stdout", "snapshot")]
    return b"".join(base64.b64decode(data) for data in shown)


def test_a_terminal_of_another_machine_is_used_over_the_socket(
    caller: Caller, session_id: str, store: OpenStore
) -> None:
    pty_id = opened(caller, session_id, "read x; stty size; echo got-$x")
    assert store.read(lambda db: hosts.shown(db, None))[0]["terminals"] == 1
    socket, _ = caller.attach(session_id)
    with socket:
        say(socket, "pty", "resize", pty_id=pty_id, cols=93, rows=33)
        data = base64.b64encode(b"far\r").decode()
        say(socket, "pty", "stdin", pty_id=pty_id, data=data)
        shown = typed(hear_until(socket, "closed"))
    assert b"33 93" in shown
    assert b"got-far" in shown
    assert caller.http.delete(f"/sessions/{session_id}/ptys/{pty_id}").status_code == 200
    whole = caller.http.get(f"/sessions/{session_id}/ptys/{pty_id}/transcript")
    assert b"got-far" in whole.content


def test_a_live_transcript_of_another_machine_is_whole(caller: Caller, session_id: str) -> None:
    pty_id = opened(caller, session_id, "seq 1 20000; echo done; sleep 1000")
    socket, _ = caller.attach(session_id)
    with socket:
        shown = b""
        while b"done" not in shown:
            shown += typed([hear(socket)])
    whole = caller.http.get(f"/sessions/{session_id}/ptys/{pty_id}/transcript").content
    assert all(b"%d\r\n" % number in whole for number in (1, 9999, 20000))
    assert caller.http.delete(f"/sessions/{session_id}/ptys/{pty_id}").status_code == 200
