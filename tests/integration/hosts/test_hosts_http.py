"""Hosts over HTTP: everybody sees them, the administrator drains them, sessions are moved."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from holdfast.domain.commands import Move
from holdfast.domain.ids import new_id
from holdfast.storage.database.engine import Db
from holdfast.storage.database.rows import change
from holdfast.storage.database.tables import SessionRow
from holdfast.storage.database.tables_hosts import HostRow
from holdfast.storage.hosts import hosts
from holdfast.storage.hosts.hosts import AWAY_AFTER_MS, Seen
from holdfast.storage.projects import operators
from tests.support.servers.api_server import ApiServer, Caller


@pytest.fixture
def host(api: ApiServer) -> Seen:
    """A host whose worker has just said that it is there."""
    host_id = new_id()
    seen = Seen(
        id=host_id, name="north", epoch=1, address="", task_queue=f"q-{host_id}", version="9.9"
    )
    api.store.write(partial(hosts.register, seen=seen))
    return seen


def listed(caller: Caller, host_id: str) -> dict[str, object]:
    answer = caller.http.get("/hosts")
    assert answer.status_code == 200, answer.text
    (found,) = [one for one in answer.json()["items"] if one["id"] == host_id]
    return dict(found)


def give(api: ApiServer, session_id: str, host_id: str) -> None:
    api.store.write(lambda db: hosts.give(db, session_id, host_id))


def administrator(api: ApiServer) -> str:
    def token(db: Db) -> str:
        return operators.issue_token(db, operators.ensure_default(db).id)

    return api.store.write(token)


def test_a_host_is_listed_with_its_state_and_the_callers_own_sessions(
    api: ApiServer, caller: Caller, host: Seen, tmp_path: Path
) -> None:
    other = api.operator()
    for one in (caller, other):
        give(api, one.session(one.project(tmp_path)["id"])["id"], host.id)
    other.close()
    shown = listed(caller, host.id)
    assert shown["seen_at"]
    del shown["seen_at"]
    expected = {"name": "north", "state": "up", "sessions": 1, "terminals": 0, "version": "9.9"}
    assert shown == {"id": host.id, **expected}


def test_a_host_that_was_not_heard_of_is_away_and_its_sessions_say_so(
    api: ApiServer, caller: Caller, host: Seen, tmp_path: Path
) -> None:
    session = caller.session(caller.project(tmp_path)["id"])
    assert session["host"] is None
    give(api, session["id"], host.id)
    path = f"/sessions/{session['id']}"
    shown = {"id": host.id, "name": "north", "state": "up"}
    assert caller.http.get(path).json()["host"] == shown
    row = api.store.read(lambda db: hosts.get(db, host.id))
    long_ago = row.seen_at - 2 * AWAY_AFTER_MS
    api.store.write(lambda db: change(db, HostRow, host.id, seen_at=long_ago))
    assert caller.http.get(path).json()["host"] == {**shown, "state": "away"}
    page = caller.http.get("/sessions").json()["items"]
    assert [one["host"]["state"] for one in page if one["id"] == session["id"]] == ["away"]


def test_only_the_administrator_drains_a_host(api: ApiServer, caller: Caller, host: Seen) -> None:
    assert caller.http.post(f"/hosts/{host.id}/drain").status_code == 403
    headers = {"Authorization": f"Bearer {administrator(api)}"}
    drained = caller.http.post(f"/hosts/{host.id}/drain", headers=headers)
    assert drained.json()["state"] == "draining"
    assert host.id not in [one.id for one in api.store.read(hosts.candidates)]
    assert caller.http.post(f"/hosts/{new_id()}/drain", headers=headers).status_code == 404
    again = caller.http.post(f"/hosts/{host.id}/undrain", headers=headers)
    assert again.json()["state"] == "up"
    assert host.id in [one.id for one in api.store.read(hosts.candidates)]


def test_a_move_is_asked_of_the_sessions_workflow(
    api: ApiServer, caller: Caller, host: Seen, tmp_path: Path
) -> None:
    session = caller.session(caller.project(tmp_path)["id"])
    answer = caller.http.post(f"/sessions/{session['id']}/move", json={"host_id": host.id})
    assert answer.json()["host"]["id"] == host.id
    name, command = api.double.asked[-1]
    assert name == "move"
    assert isinstance(command, Move)
    assert (command.host_id, bool(command.command_id)) == (host.id, True)
    row = api.store.read(lambda db: db.get(SessionRow, session["id"]))
    assert row is not None
    assert row.host_id == host.id


def test_nobody_moves_the_session_of_somebody_else(
    api: ApiServer, caller: Caller, host: Seen, tmp_path: Path
) -> None:
    other = api.operator()
    session = other.session(other.project(tmp_path)["id"])
    answer = caller.http.post(f"/sessions/{session['id']}/move", json={"host_id": host.id})
    other.close()
    assert answer.status_code == 404
