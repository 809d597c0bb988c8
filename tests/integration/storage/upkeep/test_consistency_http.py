"""The check of the store over HTTP and by `holdfast doctor`: what is wrong, and where."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.domain.ids import new_id
from holdfast.storage.database.engine import Db
from holdfast.storage.database.opening import OpenStore
from holdfast.storage.database.rows import change
from holdfast.storage.database.tables import SessionRow
from holdfast.storage.moves import heads
from holdfast.storage.projects import operators
from tests.support.blob_files import blob_file
from tests.support.command_line import run_here
from tests.support.servers.api_server import ApiServer, Caller
from tests.support.stored_rows import execute_unchecked
from tests.support.workflow_double import WorkflowDouble


def administrator(db: Db) -> tuple[str, str]:
    operator = operators.add(db, operators.DEFAULT_OPERATOR)
    return operator.id, operators.issue_token(db, operator.id)


@pytest.fixture
def served(sqlite_store: OpenStore, tmp_path: Path) -> Iterator[Caller]:
    """An administrator of a store of the test's own."""
    server = ApiServer(sqlite_store, tmp_path / "served").start()
    caller = Caller(server, *sqlite_store.write(administrator))
    yield caller
    caller.http.close()
    server.stop()


def issues(caller: Caller, mode: str) -> dict[str, str]:
    """The types of what is wrong, each with the id that it stands at."""
    answer = caller.http.post("/admin/consistency", params={"mode": mode})
    assert answer.status_code == 200, answer.text
    report = answer.json()
    assert report["status"] == ("issues" if report["issues"] else "ok")
    return {one["type"]: one["id"] for one in report["issues"]}


@pytest.mark.req("F-037", "F-038", "F-039", "F-040")
def test_what_is_wrong_is_told_over_http_and_by_the_doctor(
    served: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = served.api.store
    workflow = WorkflowDouble(store)
    source = workflow.session()
    head = workflow.run(source)
    fork = workflow.fork(source)
    workflow.run(fork)
    assert issues(served, "deep") == {}

    store.write(lambda db: change(db, SessionRow, fork, cache_id=None))
    assert issues(served, "quick") == {"session-cache-id-missing": fork}
    store.write(lambda db: change(db, SessionRow, fork, cache_id=new_id()))

    execute_unchecked(store, f"UPDATE sessions SET current_head = 'gone' WHERE id = '{fork}'")
    assert issues(served, "quick") == {"current-head-missing": fork}
    monkeypatch.setenv("HOLDFAST_URL", served.api.url)
    monkeypatch.setenv("HOLDFAST_TOKEN", served.token)
    code, out, _ = run_here("doctor")
    assert code == 1
    assert "current-head-missing" in out
    assert fork in out

    store.write(lambda db: change(db, SessionRow, fork, current_head=None))
    state = str(store.read(lambda db: heads.get(db, source, head)).state_ref)
    blob_file(store, state).unlink()
    assert issues(served, "quick") == {}
    deep = issues(served, "deep")
    assert (deep["blob/missing"], deep["head-state-unreadable"]) == (state, head)
