"""A project file that loosens something is in force only when the operator has trusted it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from holdfast.domain.project_file import CageSettings
from holdfast.storage.database.engine import Db
from holdfast.storage.database.opening import OpenStore
from holdfast.storage.database.rows import change
from holdfast.storage.database.tables import Project
from holdfast.storage.projects import project_file, projects
from holdfast.storage.sessions import session_views, sessions
from tests.support.servers.api_server import CONFIG, ApiServer, Caller
from tests.support.servers.cages_shown import cage_in_force

LOOSE = """\
cage: disabled
compaction: {delegate_to: "command:cat /etc/hostname"}
"""


def write(folder: Path, primary: str, *, name: str = "project.yaml") -> None:
    """The folder's project file, whose root agent is like that."""
    (folder / ".holdfast").mkdir(parents=True, exist_ok=True)
    head = "version: 1\nproject: demo\n" if name == "project.yaml" else ""
    body = "".join(f"  {line}\n" for line in primary.splitlines())
    text = head + ("primary:\n" + body if body else "")
    (folder / ".holdfast" / name).write_text(text)


def load(caller: Caller, folder: Path, **more: Any) -> dict[str, Any]:
    """The project of the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    answer = caller.http.post("/projects/load", json={"path": str(folder), **more})
    assert answer.status_code in (200, 201), answer.text
    shown: dict[str, Any] = answer.json()
    return shown


def show(caller: Caller, project_id: str) -> dict[str, Any]:
    shown: dict[str, Any] = caller.http.get(f"/projects/{project_id}").json()
    return shown


def session(caller: Caller, project_id: str) -> dict[str, Any]:
    """A new session."""
    made: dict[str, Any] = caller.http.post(f"/projects/{project_id}/sessions", json={}).json()
    return made


def agent_of(caller: Caller, session_id: str) -> Any:
    """The root agent as the session runs with it."""

    def read(db: Db) -> Any:
        return projects.file_of(db, sessions.get(db, session_id)).primary

    return caller.api.store.read(read)


def test_a_loosening_file_is_read_and_its_sessions_run_without_what_it_loosens(
    caller: Caller, tmp_path: Path
) -> None:
    write(tmp_path, f"max_steps: 7\n{LOOSE}")
    project = load(caller, tmp_path)
    assert project["state"] == "ready"
    assert project["trust"]["state"] == "pending"
    assert project["trust"]["loosens"] == ["delegate_to", "cage"]
    assert project["trust"]["dsl_hash"] == project["dsl_hash"]
    made = session(caller, project["id"])
    assert made["withheld"] == ["delegate_to", "cage"]
    assert (cage_in_force(made["cage"]), made["dsl_stale"]) == ("enabled", False)
    assert made["dsl_hash"] == project["dsl_hash"]
    agent = agent_of(caller, made["id"])
    assert agent.cage == CageSettings()
    assert (agent.max_steps, agent.compaction.delegate_to) == (7, None)


def test_trusting_the_hash_puts_the_whole_file_in_force_for_new_sessions(
    caller: Caller, tmp_path: Path
) -> None:
    write(tmp_path, LOOSE)
    project = load(caller, tmp_path)
    before = session(caller, project["id"])
    path = f"/projects/{project['id']}/trust"
    answer = caller.http.post(path, json={"dsl_hash": project["dsl_hash"]})
    assert answer.status_code == 200
    assert answer.json()["trust"] == {
        "state": "trusted",
        "dsl_hash": project["dsl_hash"],
        "loosens": [],
        "details": [],
    }
    made = session(caller, project["id"])
    assert (made["withheld"], cage_in_force(made["cage"])) == (None, "disabled")
    assert agent_of(caller, made["id"]).cage == "disabled"
    old = caller.http.get(f"/sessions/{before['id']}").json()
    assert (cage_in_force(old["cage"]), old["dsl_stale"]) == ("enabled", True)
    listed = caller.http.get("/sessions").json()["items"]
    assert {one["id"]: one["dsl_stale"] for one in listed} == {made["id"]: False, old["id"]: True}


def test_trusting_another_hash_than_the_files_is_refused(caller: Caller, tmp_path: Path) -> None:
    write(tmp_path, "cage: {net: true}")
    project = load(caller, tmp_path)
    write(tmp_path, LOOSE)
    path = f"/projects/{project['id']}/trust"
    answer = caller.http.post(path, json={"dsl_hash": project["dsl_hash"]})
    assert answer.status_code == 409
    assert show(caller, project["id"])["trust"]["state"] == "pending"
    assert cage_in_force(session(caller, project["id"])["cage"]) == "enabled"


def test_another_operator_can_neither_see_nor_trust_it(caller: Caller, tmp_path: Path) -> None:
    write(tmp_path, LOOSE)
    project = load(caller, tmp_path)
    stranger = caller.api.operator()
    path = f"/projects/{project['id']}/trust"
    answer = stranger.http.post(path, json={"dsl_hash": project["dsl_hash"]})
    assert answer.status_code == 404
    assert show(caller, project["id"])["trust"]["state"] == "pending"


def test_a_first_load_with_trust_puts_the_whole_file_in_force(
    caller: Caller, tmp_path: Path
) -> None:
    write(tmp_path, LOOSE)
    project = load(caller, tmp_path, trust=True)
    assert project["trust"]["state"] == "trusted"
    assert cage_in_force(session(caller, project["id"])["cage"]) == "disabled"


def test_a_local_file_written_from_outside_waits_until_it_is_trusted(
    caller: Caller, tmp_path: Path
) -> None:
    """The model of one session writes the overlay; the next session is as before."""
    write(tmp_path, "cage: {}")
    project = load(caller, tmp_path, trust=True)
    session(caller, project["id"])
    write(tmp_path, LOOSE, name="project.local.yaml")
    made = session(caller, project["id"])
    assert (cage_in_force(made["cage"]), made["withheld"]) == ("enabled", ["delegate_to", "cage"])
    assert agent_of(caller, made["id"]).cage == CageSettings()
    write(tmp_path, "cage: {net: true, env: [OPENAI_API_KEY]}", name="project.local.yaml")
    made = session(caller, project["id"])
    assert made["withheld"] == ["network", "env"]
    assert agent_of(caller, made["id"]).cage == CageSettings()


def test_a_neutral_or_tightening_change_asks_nobody(caller: Caller, tmp_path: Path) -> None:
    write(tmp_path, "cage: {net: true, memory_mb: 100}")
    project = load(caller, tmp_path, trust=True)
    write(tmp_path, "system_prompt: other words\ncage: {net: true, memory_mb: 50}")
    assert show(caller, project["id"])["trust"]["state"] == "trusted"
    made = session(caller, project["id"])
    cage = agent_of(caller, made["id"]).cage
    assert (made["withheld"], cage.net, cage.memory_mb) == (None, True, 50)


def test_a_file_that_was_tightened_is_not_loosened_again_without_asking(
    caller: Caller, tmp_path: Path
) -> None:
    write(tmp_path, "cage: {net: true}")
    project = load(caller, tmp_path, trust=True)
    write(tmp_path, "cage: {net: false}")
    assert show(caller, project["id"])["trust"]["state"] == "trusted"
    write(tmp_path, "cage: {net: true}")
    assert show(caller, project["id"])["trust"]["loosens"] == ["network"]


def test_while_it_waits_it_is_compared_with_what_was_trusted_last(
    caller: Caller, tmp_path: Path
) -> None:
    write(tmp_path, "cage: {net: true}")
    project = load(caller, tmp_path, trust=True)
    write(tmp_path, LOOSE)
    assert show(caller, project["id"])["trust"]["state"] == "pending"
    assert agent_of(caller, session(caller, project["id"])["id"]).cage == CageSettings(net=True)
    write(tmp_path, "cage: {net: true}\ndescription: back again")
    assert show(caller, project["id"])["trust"]["state"] == "trusted"


def test_more_running_sessions_than_trusted_wait_too(caller: Caller, tmp_path: Path) -> None:
    write(tmp_path, "")
    file = tmp_path / ".holdfast" / "project.yaml"
    file.write_text("version: 1\nproject: demo\nlimits: {running_sessions: 900}\n")
    project = load(caller, tmp_path)
    assert (project["trust"]["loosens"], project["limit"]) == (["limits"], 4)
    assert load(caller, tmp_path, trust=True)["limit"] == 900


def test_a_limit_above_that_of_this_server_waits(sqlite_store: OpenStore, tmp_path: Path) -> None:
    config = CONFIG + "[cages]\nmemory_mb = 512\npids = 64\n"
    narrowed = ApiServer(sqlite_store, tmp_path / "api-home", config=config).start()
    caller = narrowed.operator()
    try:
        write(tmp_path / "work", "cage: {memory_mb: 4096, pids: 64}")
        project = load(caller, tmp_path / "work")
        asked = [(one["key"], one["wanted"]) for one in project["trust"]["details"]]
        assert asked == [("primary.cage.memory_mb", 4096)]
        made = session(caller, project["id"])
        assert agent_of(caller, made["id"]).cage == CageSettings(pids=64)
    finally:
        caller.close()
        narrowed.stop()


def test_a_fork_runs_with_what_is_in_force_now(caller: Caller, tmp_path: Path) -> None:
    write(tmp_path, LOOSE)
    project = load(caller, tmp_path, trust=True)
    source = session(caller, project["id"])
    write(tmp_path, "cage: {}")
    show(caller, project["id"])
    write(tmp_path, LOOSE)
    path = f"/projects/{project['id']}/sessions"
    made = caller.http.post(path, json={"resume_from": source["id"]}).json()
    assert (cage_in_force(made["cage"]), made["withheld"]) == ("enabled", ["delegate_to", "cage"])


def test_an_imported_session_runs_with_what_its_importer_trusts(
    caller: Caller, tmp_path: Path
) -> None:
    write(tmp_path, LOOSE)
    project = load(caller, tmp_path, trust=True)
    made = session(caller, project["id"])
    path = f"/sessions/{made['id']}"
    export = caller.http.get(f"{path}/export", params={"format": "json"})
    caller.http.delete(path, params={"confirm": "true"})
    assert caller.http.post(f"{path}/purge", params={"confirm": "true"}).status_code == 200
    write(tmp_path, "")
    show(caller, project["id"])
    answer = caller.http.post("/sessions/import", content=export.content)
    assert answer.status_code == 201, answer.text
    assert caller.http.get(path).json()["withheld"] == ["delegate_to", "cage"]
    assert agent_of(caller, made["id"]).cage == CageSettings()


@pytest.mark.parametrize("changed", [False, True])
def test_a_project_of_before_keeps_its_file_until_that_is_written(
    caller: Caller, tmp_path: Path, *, changed: bool
) -> None:
    """Revision 0008 leaves such rows: the file's meaning of then, under the hash of its bytes."""
    write(tmp_path, "")
    loaded = project_file.load(tmp_path)
    content = json.loads(json.dumps(loaded.content))
    content["primary"]["cage"] = "disabled"
    project = load(caller, tmp_path)

    def as_before(db: Db) -> None:
        row = projects.by_id(db, project["id"])
        db.connection().exec_driver_sql(f"DELETE FROM project_files WHERE hash = '{loaded.hash}'")
        projects.keep_file(db, loaded.hash, content)
        change(db, Project, row.id, file_hash=loaded.hash, trusted_hash=loaded.hash)

    caller.api.store.write(as_before)
    projects._FILES.pop(loaded.hash, None)
    session_views._cages.pop(loaded.hash, None)
    if changed:
        write(tmp_path, "description: new")
    load(caller, tmp_path)
    made = session(caller, project["id"])
    assert cage_in_force(made["cage"]) == ("enabled" if changed else "disabled")
