"""The session socket: attach, replay, live, and every way it ends."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus

from holdfast.domain.ids import new_id
from holdfast.domain.lifecycle import Action
from holdfast.storage.database.engine import Db
from holdfast.storage.database.rows import change
from holdfast.storage.database.tables import SessionRow
from holdfast.storage.database.tables_history import EventRow
from holdfast.storage.log import events, frames
from holdfast.storage.projects import operators
from holdfast.storage.sessions import leases, sessions
from tests.support.servers.api_server import ApiServer, Caller, hear, hear_until, say
from tests.support.waiting import wait_for


@pytest.fixture
def session_id(caller: Caller, tmp_path: Path) -> str:
    found: str = caller.session(caller.project(tmp_path / "work")["id"])["id"]
    return found


@pytest.fixture
def stream(api: ApiServer, session_id: str) -> Callable[..., int]:
    """Appends deltas to the session, as a model call does."""

    def append(*texts: str) -> int:
        pairs = [("delta", {"text": text}) for text in texts]
        return api.store.write(lambda db: frames.append(db, session_id, *pairs))

    return append


def recorded(api: ApiServer, session_id: str, kind: str) -> list[EventRow]:
    rows = api.store.read(lambda db: events.after(db, session_id, 0, limit=1000))
    return [row for row in rows if row.kind == kind]


def closing(socket: Any) -> tuple[dict[str, Any], int | None]:
    """The last control frame and the close code."""
    last: dict[str, Any] = {}
    try:
        while True:
            frame = hear(socket)
            last = frame if frame["channel"] == "control" else last
    except ConnectionClosed as closed:
        return last, closed.rcvd.code if closed.rcvd else None


@pytest.mark.req("K-093", "K-131")
def test_a_client_is_welcomed_and_sees_what_happens(
    api: ApiServer, caller: Caller, session_id: str, stream: Callable[..., int]
) -> None:
    stream("before")
    socket, welcome = caller.attach(session_id, device_hint="test")
    with socket:
        payload = welcome["payload"]
        assert (welcome["channel"], welcome["type"]) == ("control", "welcome")
        assert payload["session_id"] == payload["session"]["id"] == session_id
        assert payload["server_seq"]["output"] == 1
        assert payload["pending"] == {"checkpoint": None, "queued": None, "ptys": []}
        stream("live")
        frame = hear(socket)
        assert (frame["channel"], frame["type"], frame["seq"]) == ("output", "delta", 2)
        assert frame["payload"]["text"] == "live"
        run = caller.send(session_id).json()["run"]["id"]
        heard = hear_until(socket, "session.state")
        assert [item["type"] for item in heard if item["channel"] == "output"] == ["message"]
        assert any(item["payload"].get("run_id") == run for item in heard)
    attached = recorded(api, session_id, "session.attached")
    assert [row.data["device_hint"] for row in attached] == ["test"]
    assert attached[0].data["user_id"] == caller.id


@pytest.mark.req("K-093", "K-149", "K-003", "K-141")
def test_a_client_that_comes_back_gets_what_it_missed(
    caller: Caller, session_id: str, stream: Callable[..., int]
) -> None:
    socket, welcome = caller.attach(session_id)
    seqs = welcome["payload"]["server_seq"]
    socket.close()
    stream("a", "b", "c")
    socket, welcome = caller.attach(session_id, resume_from_seq=seqs)
    with socket:
        heard = hear_until(socket, "session.attached")
        said = [item for item in heard if item["channel"] == "output"]
        assert [item["payload"]["text"] for item in said] == ["a", "b", "c"]
        assert [item["seq"] for item in said] == [seqs["output"] + n for n in (1, 2, 3)]
        assert [item["type"] for item in heard if item["channel"] == "events"] == [
            "session.detached",
            "session.attached",
        ]


@pytest.mark.req("K-091", "K-094", "K-149")
def test_a_gap_is_said_and_the_client_refetches(
    api: ApiServer, caller: Caller, session_id: str, stream: Callable[..., int]
) -> None:
    stream("a", "b", "c")
    api.store.write(lambda db: frames.prune(db, session_id, keep_ms=-10_000))
    stream("d")
    for seqs in ({"output": 1}, {"output": 99}, {"events": 99}, {"output": 4, "events": 99}):
        socket, first = caller.attach(session_id, resume_from_seq=seqs)
        assert first["payload"] == {"code": "resume_failed", "reason": "resume_failed"}
        assert closing(socket)[1] == 4409
    assert caller.http.get(f"/sessions/{session_id}/messages").status_code == 200
    socket, first = caller.attach(session_id, resume_from_seq={"output": 3})
    with socket:
        assert first["type"] == "welcome"
        assert hear(socket)["payload"]["text"] == "d"


@pytest.mark.req("K-096", "K-149")
def test_a_second_operator_is_refused_and_an_observer_let_in(
    api: ApiServer, caller: Caller, session_id: str, stream: Callable[..., int]
) -> None:
    socket, _ = caller.attach(session_id)
    assert caller.http.get(f"/sessions/{session_id}").json()["attached"] is True
    with pytest.raises(InvalidStatus) as refused:
        caller.attach(session_id)
    assert refused.value.response.status_code == 409
    assert json.loads(refused.value.response.body or b"")["error"]["code"] == "conflict"
    observer, welcome = caller.attach(session_id, observe=True)
    assert welcome["type"] == "welcome"
    stream("both")
    assert hear(socket)["payload"]["text"] == "both"
    assert hear_until(observer, "delta")[-1]["payload"]["text"] == "both"
    say(observer, "pty", "stdin", pty_id="x", data="YQ==")
    assert hear_until(observer, "error")[-1]["payload"]["code"] == "forbidden"
    observer.close()
    socket.close()
    again, _ = wait_for(lambda: _try_attach(caller, session_id), "the lease to be free")
    again.close()
    wait_for(lambda: len(recorded(api, session_id, "session.detached")) == 2, "both to be detached")
    reasons = [row.data["reason"] for row in recorded(api, session_id, "session.detached")]
    assert reasons == ["clean", "clean"]


def _try_attach(caller: Caller, session_id: str) -> Any:
    try:
        return caller.attach(session_id)
    except InvalidStatus:
        return None


@pytest.mark.req("K-092")
def test_a_lost_connection_is_no_clean_end(api: ApiServer, caller: Caller, session_id: str) -> None:
    socket, _ = caller.attach(session_id)
    socket.socket.close()
    found = wait_for(
        lambda: recorded(api, session_id, "session.detached"), "the loss to be recorded"
    )
    assert found[0].data["reason"] == "error"
    assert found[0].data["user_id"] == caller.id


@pytest.mark.req("K-092")
def test_a_dead_process_frees_its_lease_and_a_living_one_of_elsewhere_does_not(
    api: ApiServer, caller: Caller, session_id: str
) -> None:
    name = leases.attach_lease(session_id)

    def hold(holder: str, life_ms: int) -> None:
        def take(db: Db) -> None:
            leases.acquire(db, name, holder, life_ms=life_ms)

        api.store.write(take)

    import socket as network

    hold(f"{network.gethostname()}:4194305:x/y", 60_000)
    attached, _ = caller.attach(session_id)
    lost = recorded(api, session_id, "session.detached")
    assert [(row.data["reason"], row.data["user_id"]) for row in lost] == [("error", caller.id)]
    attached.close()
    wait_for(lambda: api.store.read(lambda db: leases.holder(db, name)) is None, "the lease")
    hold("elsewhere:1:x/y", 60_000)
    with pytest.raises(InvalidStatus):
        caller.attach(session_id)
    api.store.write(lambda db: leases.release_process(db, "elsewhere:1:x"))
    hold("elsewhere:1:x/y", -1)
    attached, _ = caller.attach(session_id)
    attached.close()


@pytest.mark.req("K-032")
def test_the_end_of_the_session_ends_the_socket(caller: Caller, session_id: str) -> None:
    socket, _ = caller.attach(session_id)
    caller.http.delete(f"/sessions/{session_id}", params={"confirm": "true"})
    heard = hear_until(socket, "closing")
    assert heard[-1]["payload"] == {"code": "session_ended", "reason": "session_ended"}
    assert "session.state" in [item["type"] for item in heard]
    assert closing(socket)[1] == 1000
    late, welcome = caller.attach(session_id, resume_from_seq={"events": 0, "output": 0})
    assert welcome["payload"]["session"]["state"] == "ended"
    heard = hear_until(late, "closing")
    assert heard[0]["type"] == "session.created"
    assert heard[-1]["payload"]["code"] == "session_ended"


@pytest.mark.req("K-033")
def test_the_failure_of_the_session_ends_the_socket(
    api: ApiServer, caller: Caller, session_id: str
) -> None:
    socket, _ = caller.attach(session_id)
    api.store.write(lambda db: sessions.move(db, session_id, Action.FAIL, "failure"))
    heard = hear_until(socket, "closing")
    moved = [item["payload"] for item in heard if item["type"] == "session.state"]
    assert [(one["from_state"], one["to_state"]) for one in moved] == [("idle", "failed")]
    assert closing(socket)[1] == 1000


@pytest.mark.req("K-003", "K-131")
def test_work_goes_on_when_its_operator_leaves(
    api: ApiServer, caller: Caller, session_id: str
) -> None:
    socket, _ = caller.attach(session_id)
    run = caller.send(session_id).json()["run"]["id"]
    socket.close()
    wait_for(lambda: recorded(api, session_id, "session.detached"), "the operator to be gone")
    shown = caller.http.get(f"/sessions/{session_id}").json()
    assert (shown["state"], shown["active_run"]) == ("running", run)
    assert caller.http.get(f"/sessions/{session_id}/runs/{run}").json()["state"] == "running"


def test_a_reopened_session_is_not_over_for_those_who_replay_its_end(
    caller: Caller, session_id: str, stream: Callable[..., int]
) -> None:
    caller.http.delete(f"/sessions/{session_id}", params={"confirm": "true"})
    assert caller.http.post(f"/sessions/{session_id}/reopen").status_code == 200
    socket, _ = caller.attach(session_id, resume_from_seq={"events": 0, "output": 0})
    with socket:
        stream("alive")
        heard = hear_until(socket, "delta")
        assert "closing" not in [item["type"] for item in heard]


def test_the_welcome_names_what_is_pending(api: ApiServer, caller: Caller, tmp_path: Path) -> None:
    project = caller.project(tmp_path / "one", "project: one\nlimits: {running_sessions: 1}\n")
    first, second = (caller.session(project["id"])["id"] for _ in range(2))
    caller.send(first)
    queued = caller.send(second).json()
    socket, welcome = caller.attach(second)
    socket.close()
    pending = welcome["payload"]["pending"]
    assert pending["queued"]["message_id"] == queued["message"]["id"]
    checkpoint_id = new_id()
    api.store.write(
        lambda db: change(db, SessionRow, first, current_checkpoint=checkpoint_id, state="paused")
    )
    socket, welcome = caller.attach(first)
    socket.close()
    assert welcome["payload"]["pending"]["checkpoint"] == checkpoint_id


def test_another_operators_socket_does_not_exist(api: ApiServer, session_id: str) -> None:
    other = api.operator()
    with pytest.raises(InvalidStatus) as refused:
        other.attach(session_id)
    assert refused.value.response.status_code == 404
    other.close()


SOCKETS = ("/sessions/{}/socket", "/sessions/{}/socket?observe=1", "/system/socket")


@pytest.mark.parametrize("path", SOCKETS)
def test_a_page_of_another_site_cannot_use_a_browsers_cookie(
    api: ApiServer, caller: Caller, session_id: str, path: str
) -> None:
    def sign_in(db: Db) -> str | None:
        return operators.redeem_launch(db, operators.issue_token(db, caller.id, kind="launch"))

    signed_in = {"Cookie": f"holdfast_session={api.store.write(sign_in)}", "Authorization": ""}
    for origin in ({}, {"Origin": "https://evil.example"}, {"Origin": "null"}):
        with pytest.raises(InvalidStatus) as refused:
            caller.socket(path.format(session_id), headers={**signed_in, **origin})
        assert refused.value.response.status_code == 403
    caller.socket(path.format(session_id), headers={**signed_in, "Origin": api.url}).close()


@pytest.mark.parametrize("path", SOCKETS)
def test_a_foreign_page_and_a_stranger_are_refused(
    caller: Caller, session_id: str, path: str
) -> None:
    path = path.format(session_id)
    for headers, status in (
        ({"Origin": "https://evil.example"}, 403),
        ({"Authorization": "Bearer wrong"}, 401),
        ({"Host": "evil.example"}, 403),
    ):
        with pytest.raises(InvalidStatus) as refused:
            caller.socket(path, headers=headers)
        assert refused.value.response.status_code == status
