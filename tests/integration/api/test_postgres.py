"""The API over Postgres: the same answers, and sockets that are woken by notifications."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from websockets.exceptions import InvalidStatus

from holdfast.storage.database.opening import OpenStore
from holdfast.storage.log import frames
from tests.support.servers.api_server import ApiServer, Caller, hear, hear_until


@pytest.fixture
def postgres_caller(postgres_store: OpenStore, tmp_path: Path) -> Iterator[Caller]:
    api = ApiServer(postgres_store, tmp_path / "api-home").start()
    caller = api.operator()
    yield caller
    caller.close()
    api.stop()


@pytest.mark.req("K-006")
def test_a_session_is_made_run_and_watched_on_postgres(
    postgres_caller: Caller, tmp_path: Path
) -> None:
    caller, api = postgres_caller, postgres_caller.api
    project = caller.project(tmp_path / "work")
    session_id = caller.session(project["id"], title="on postgres")["id"]
    with caller.socket("/system/socket") as system:
        assert hear(system)["payload"]["total"] == 0
        socket, welcome = caller.attach(session_id)
        with socket:
            assert welcome["type"] == "welcome"
            assert caller.send(session_id, "hello").status_code == 202
            hear_until(socket, "session.state")
            delta = [("delta", {"text": "x"})]
            api.store.write(lambda db: frames.append(db, session_id, *delta))
            assert hear_until(socket, "delta")[-1]["payload"] == {"text": "x"}
            api.double.finish(session_id)
            hear_until(socket, "run.completed")
        assert [hear(system)["payload"]["total"] for _ in range(2)] == [1, 0]
    items = caller.http.get("/sessions", params={"q": "POSTGRES"}).json()["items"]
    assert [item["id"] for item in items] == [session_id]
    for path in ("/sessions/%00", "/sessions?q=%00", "/sessions/x%00"):
        assert caller.http.get(path).status_code == 400
    with pytest.raises(InvalidStatus) as refused:
        caller.socket("/sessions/a%00b/socket")
    assert refused.value.response.status_code == 404
    answer = caller.http.put(f"/sessions/{session_id}", json={"title": "a\0b"})
    assert answer.status_code == 400
