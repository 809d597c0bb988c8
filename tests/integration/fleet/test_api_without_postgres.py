"""An API whose Postgres goes away and comes back: 503, sockets that wait, nothing lost."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import ClientConnection

from api.stream import hub as hub_module
from api.stream import tail as tail_module
from holdfast.storage.database.opening import open_store
from holdfast.storage.log import frames
from tests.support.servers.api_server import ApiServer, Caller, hear, hear_until
from tests.support.servers.postgres import PostgresCluster
from tests.support.waiting import wait_for

Mortal = tuple[PostgresCluster, str]


@pytest.fixture
def mortal_caller(mortal_postgres: Mortal, tmp_path: Path) -> Iterator[Caller]:
    cluster, url = mortal_postgres
    store = open_store(url, tmp_path / "home")
    api = ApiServer(store, tmp_path / "api-home").start()
    caller = api.operator()
    yield caller
    if cluster.server is None:
        cluster.serve()
    caller.close()
    api.stop()
    store.close()


def say(caller: Caller, session_id: str, text: str) -> None:
    delta = [("delta", {"text": text})]
    caller.api.store.write(lambda db: frames.append(db, session_id, *delta))


def closing_code(socket: ClientConnection) -> int:
    """Read to the end: what the server said when it closed."""
    for _ in range(100):
        try:
            socket.recv(timeout=60.0)
        except ConnectionClosed as closed:
            return 1006 if closed.rcvd is None else closed.rcvd.code
    raise AssertionError("the socket does not end")


@pytest.mark.parametrize("end", ["halt", "kill"])
def test_the_api_answers_503_while_postgres_is_away_and_recovers_by_itself(
    mortal_caller: Caller, mortal_postgres: Mortal, tmp_path: Path, end: str
) -> None:
    cluster, _ = mortal_postgres
    caller = mortal_caller
    project = caller.project(tmp_path / "work")
    session_id = caller.session(project["id"])["id"]
    getattr(cluster, end)()
    answers = [
        caller.http.get("/sessions"),
        caller.http.get(f"/sessions/{session_id}"),
        caller.http.post(f"/projects/{project['id']}/sessions", json={}),
        caller.send(session_id),
    ]
    for answer in answers:
        assert answer.status_code == 503, answer.text
        assert answer.json()["error"]["code"] == "unavailable"
        assert answer.headers["retry-after"] == "1"
    assert caller.http.get(f"{caller.api.url}/healthz").status_code == 200
    assert caller.http.get(f"{caller.api.url}/readyz").status_code == 503
    cluster.serve()
    wait_for(lambda: caller.http.get("/sessions").status_code == 200, "the API to recover")
    assert caller.send(session_id).status_code == 202


@pytest.mark.parametrize("end", ["halt", "kill"])
def test_a_socket_waits_for_postgres_and_goes_on_without_a_gap(
    mortal_caller: Caller, mortal_postgres: Mortal, tmp_path: Path, end: str
) -> None:
    cluster, _ = mortal_postgres
    caller = mortal_caller
    session_id = caller.session(caller.project(tmp_path / "work")["id"])["id"]
    socket, _ = caller.attach(session_id)
    with socket:
        say(caller, session_id, "before")
        heard = hear_until(socket, "delta")
        getattr(cluster, end)()
        assert caller.http.get("/sessions").status_code == 503
        cluster.serve()
        wait_for(lambda: caller.http.get("/sessions").status_code == 200, "the API to recover")
        say(caller, session_id, "after")
        say(caller, session_id, "last")
        heard += [*hear_until(socket, "delta"), *hear_until(socket, "delta")]
    said = [frame for frame in heard if frame["type"] == "delta"]
    assert [frame["payload"]["text"] for frame in said] == ["before", "after", "last"]
    assert [frame["seq"] for frame in said] == [1, 2, 3]


def test_a_socket_that_waited_too_long_is_told_to_come_again_and_may_attach_again(
    mortal_caller: Caller,
    mortal_postgres: Mortal,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cluster, _ = mortal_postgres
    caller = mortal_caller
    monkeypatch.setattr(tail_module, "AWAY_S", 0.5)
    monkeypatch.setattr(tail_module, "LOOK_AGAIN_S", 0.2)
    monkeypatch.setattr(hub_module, "RENEW_S", 0.2)
    caller.api.stop()
    caller.api.start()
    session_id = caller.session(caller.project(tmp_path / "work")["id"])["id"]
    socket, _ = caller.attach(session_id)
    with socket, caller.socket("/system/socket") as system:
        hear(system)
        cluster.kill()
        for one in (socket, system):
            assert closing_code(one) == 1013
    cluster.serve()

    def attached_again() -> bool:
        if caller.http.get("/sessions").status_code != 200:
            return False
        events = caller.http.get(f"/sessions/{session_id}/events").json()
        left = [one for one in events["items"] if one["type"] == "session.detached"]
        return bool(left)

    wait_for(attached_again, "the leaving to be written", timeout_s=15.0)
    again, welcome = caller.attach(session_id)
    with again:
        assert welcome["type"] == "welcome"
