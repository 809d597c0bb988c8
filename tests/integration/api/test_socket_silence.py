"""A client that answers no ping is gone, and the next one is let in; a quiet one stays."""

from __future__ import annotations

import socket as network
from pathlib import Path

import pytest
from websockets.client import ClientProtocol
from websockets.uri import parse_uri

from holdfast.storage.database.opening import OpenStore
from holdfast.storage.log import events, frames
from holdfast.storage.sessions import leases
from tests.support.servers.api_server import ApiServer, Caller, hear
from tests.support.waiting import wait_for

HELLO = b'{"channel": "control", "type": "hello", "payload": {}}'


class SilentClient:
    """Attaches and then answers nothing: as a laptop does whose lid was closed."""

    def __init__(self, caller: Caller, session_id: str) -> None:
        address = f"ws://127.0.0.1:{caller.api.port}/api/v1/sessions/{session_id}/socket"
        self.protocol = ClientProtocol(parse_uri(address))
        self.connection = network.create_connection(("127.0.0.1", caller.api.port), timeout=120.0)
        request = self.protocol.connect()
        request.headers["Authorization"] = f"Bearer {caller.token}"
        self.protocol.send_request(request)
        self._flush()
        self.protocol.receive_data(self.connection.recv(65536))
        self.protocol.send_text(HELLO)
        self._flush()

    def _flush(self) -> None:
        self.connection.sendall(b"".join(self.protocol.data_to_send()))


@pytest.mark.req("K-089", "K-092", "K-096")
def test_a_client_that_answers_no_ping_is_detached_by_timeout(
    sqlite_store: OpenStore, tmp_path: Path
) -> None:
    api = ApiServer(sqlite_store, tmp_path / "api-home", ping_s=1.0).start()
    caller = api.operator()
    session_id = caller.session(caller.project(tmp_path / "work")["id"])["id"]
    client = SilentClient(caller, session_id)

    def reasons() -> list[str]:
        rows = sqlite_store.read(lambda db: events.after(db, session_id, 0, limit=100))
        return [row.data["reason"] for row in rows if row.kind == "session.detached"]

    try:
        assert wait_for(reasons, "the client to be given up") == ["timeout"]
        name = leases.attach_lease(session_id)
        wait_for(lambda: sqlite_store.read(lambda db: leases.holder(db, name)) is None, "the lease")
        again, welcome = caller.attach(session_id)
        assert welcome["type"] == "welcome"
        again.close()
    finally:
        client.connection.close()
        caller.close()
        api.stop()


@pytest.mark.req("K-090")
def test_a_quiet_client_stays_attached_while_the_buffer_passes_its_deadline(
    api: ApiServer, caller: Caller, tmp_path: Path
) -> None:
    session_id = caller.session(caller.project(tmp_path / "work")["id"])["id"]

    def stream(text: str) -> None:
        api.store.write(lambda db: frames.append(db, session_id, ("delta", {"text": text})))

    assert frames.KEEP_MS == 10 * 60 * 1000
    socket, _ = caller.attach(session_id)
    with socket:
        stream("early")
        assert hear(socket)["payload"]["text"] == "early"
        # As if the ten minutes had passed.
        assert api.store.write(lambda db: frames.prune(db, session_id, keep_ms=-10_000)) == 1
        assert caller.http.get(f"/sessions/{session_id}").json()["attached"] is True
        stream("late")
        assert hear(socket)["payload"]["text"] == "late"
        rows = api.store.read(lambda db: events.after(db, session_id, 0, limit=100))
        assert "session.detached" not in [row.kind for row in rows]
    again, first = caller.attach(session_id, resume_from_seq={"output": 0})
    again.close()
    assert first["payload"]["code"] == "resume_failed"
