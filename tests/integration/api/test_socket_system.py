"""The system socket: running counts at connect and at every start and end, the caller's only."""

from __future__ import annotations

from pathlib import Path

import pytest
from websockets.exceptions import InvalidStatus

from tests.support.servers.api_server import ApiServer, Caller, hear


@pytest.mark.req("K-026", "K-028", "K-125", "K-145")
def test_counts_come_at_connect_and_at_every_start_and_end(
    api: ApiServer, caller: Caller, tmp_path: Path
) -> None:
    project = caller.project(tmp_path / "work")
    made = [caller.session(project["id"])["id"] for _ in range(2)]
    with caller.socket("/system/socket") as socket:
        first = hear(socket)
        assert first["type"] == "sessions.running_count"
        assert first["payload"]["total"] == 0
        assert first["payload"]["per_project"][project["id"]] == {"running": 0, "limit": 4}
        caller.send(made[0])
        caller.send(made[1])
        api.double.finish(made[0])
        heard = [hear(socket)["payload"] for _ in range(3)]
        assert [item["total"] for item in heard] == [1, 2, 1]
        running = [item["per_project"][project["id"]]["running"] for item in heard]
        assert running == [1, 2, 1]
        assert heard[-1]["per_operator"] == {caller.id: {"running": 1, "limit": 16}}


@pytest.mark.req("K-002")
def test_nobody_hears_of_others(api: ApiServer, caller: Caller, tmp_path: Path) -> None:
    other = api.operator()
    theirs = other.session(other.project(tmp_path / "theirs")["id"])["id"]
    mine = caller.session(caller.project(tmp_path / "mine")["id"])["id"]
    with caller.socket("/system/socket") as socket:
        assert len(hear(socket)["payload"]["per_project"]) == 1
        other.send(theirs)
        caller.send(mine)
        told = hear(socket)["payload"]
        assert told["total"] == 1
        assert set(told["per_operator"]) == {caller.id}
        assert len(told["per_project"]) == 1
    other.close()


def test_a_stranger_is_refused(caller: Caller) -> None:
    with pytest.raises(InvalidStatus) as refused:
        caller.socket("/system/socket", headers={"Authorization": "Bearer wrong"})
    assert refused.value.response.status_code == 401
