"""Projects over HTTP: loading, showing, and a file that changes or breaks."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.storage.database.engine import Db
from holdfast.storage.database.rows import change
from holdfast.storage.database.tables import Project, SessionRow
from holdfast.storage.projects import project_file
from tests.support.servers.api_server import ApiServer, Caller

FILE = "version: 1\nproject: demo\nprimary:\n  model: default\n"


def test_a_folder_is_loaded_once_and_shown(caller: Caller, tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    path = str(tmp_path / "work")
    first = caller.http.post("/projects/load", json={"path": path})
    again = caller.http.post("/projects/load", json={"path": path})
    assert (first.status_code, again.status_code) == (201, 200)
    assert first.json()["id"] == again.json()["id"]
    shown = caller.http.get(f"/projects/{first.json()['id']}").json()
    assert shown["name"] == "work"
    assert (shown["state"], shown["running"], shown["limit"]) == ("ready", 0, 4)
    listed = caller.http.get("/projects").json()
    assert [item["id"] for item in listed["items"]] == [shown["id"]]
    assert listed["next_cursor"] is None


def test_a_broken_file_is_refused_with_its_place_and_nothing_is_written(
    caller: Caller, tmp_path: Path
) -> None:
    folder = tmp_path / "work"
    (folder / ".holdfast").mkdir(parents=True)
    (folder / ".holdfast" / "project.yaml").write_text("version: 1\nproject: demo\nmodle: x\n")
    answer = caller.http.post("/projects/load", json={"path": str(folder)})
    assert answer.status_code == 422
    error = answer.json()["error"]
    assert error["code"] == "dsl_invalid"
    assert error["details"]["line"] == 3
    assert "modle" in error["details"]["reason"]
    assert caller.http.get("/projects").json()["items"] == []


@pytest.mark.parametrize("model", ["nobody", "nobody:x", "stub:"])
def test_an_unknown_model_in_the_file_is_refused(
    caller: Caller, tmp_path: Path, model: str
) -> None:
    folder = tmp_path / "work"
    (folder / ".holdfast").mkdir(parents=True)
    text = FILE.replace("default", f"'{model}'")
    (folder / ".holdfast" / "project.yaml").write_text(text)
    answer = caller.http.post("/projects/load", json={"path": str(folder)})
    assert answer.status_code == 422
    assert answer.json()["error"]["details"]["line"] == 4


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({"path": "/no/such/folder"}, 404),
        ({"path": "relative"}, 400),
        ({"path": ""}, 400),
        ({"path": "/a\0b"}, 400),
        ({}, 400),
        ({"path": "/tmp", "more": 1}, 400),
        ([], 400),
    ],
)
def test_a_path_that_is_no_folder_is_refused(caller: Caller, body: object, status: int) -> None:
    answer = caller.http.post("/projects/load", json=body)
    assert answer.status_code == status, answer.text
    assert set(answer.json()) == {"error"}


@pytest.mark.req("K-126", "K-127")
def test_sessions_keep_their_file_and_say_that_it_is_old(caller: Caller, tmp_path: Path) -> None:
    project = caller.project(tmp_path / "work", FILE)
    session = caller.session(project["id"])
    assert session["dsl_stale"] is False
    (tmp_path / "work" / ".holdfast" / "project.yaml").write_text(FILE + "on_crash: fail\n")
    shown = caller.http.get(f"/sessions/{session['id']}").json()
    assert shown["dsl_stale"] is True
    assert shown["dsl_hash"] == session["dsl_hash"]
    newer = caller.session(project["id"])
    assert newer["dsl_stale"] is False
    assert newer["dsl_hash"] != session["dsl_hash"]


@pytest.mark.req("K-127")
@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("project.yaml", FILE + "# a remark\n"),
        ("project.yaml", FILE + "\n"),
        ("project.local.yaml", "# nothing but a remark\n"),
    ],
)
def test_any_change_of_a_project_files_content_makes_its_sessions_stale(
    caller: Caller, tmp_path: Path, name: str, text: str
) -> None:
    project = caller.project(tmp_path / "work", FILE)
    session = caller.session(project["id"])
    (tmp_path / "work" / ".holdfast" / name).write_text(text)
    assert caller.http.get(f"/sessions/{session['id']}").json()["dsl_stale"] is True
    listed = caller.http.get("/sessions").json()["items"]
    assert [item["dsl_stale"] for item in listed] == [True]


@pytest.mark.req("K-127")
def test_a_session_from_before_byte_hashes_is_stale_only_when_the_meaning_changes(
    api: ApiServer, caller: Caller, tmp_path: Path
) -> None:
    project = caller.project(tmp_path / "work", FILE)
    session = caller.session(project["id"])
    meaning = project_file.load(tmp_path / "work").meaning

    def as_before(db: Db) -> None:
        change(db, SessionRow, session["id"], dsl_hash=meaning)
        change(db, Project, project["id"], dsl_hash=meaning, dsl_meaning=None)

    api.store.write(as_before)
    path = f"/sessions/{session['id']}"
    caller.project(tmp_path / "work")
    assert caller.http.get(path).json()["dsl_stale"] is False
    file = tmp_path / "work" / ".holdfast" / "project.yaml"
    file.write_text(FILE + "# a remark\n")
    assert caller.http.get(path).json()["dsl_stale"] is False
    file.write_text(FILE + "on_crash: fail\n")
    assert caller.http.get(path).json()["dsl_stale"] is True


@pytest.mark.req("K-127")
def test_a_project_without_a_file_keeps_its_hash(caller: Caller, tmp_path: Path) -> None:
    first = caller.project(tmp_path / "work")
    assert caller.project(tmp_path / "work")["dsl_hash"] == first["dsl_hash"]
    session = caller.session(first["id"])
    assert caller.http.get(f"/sessions/{session['id']}").json()["dsl_stale"] is False


@pytest.mark.req("K-013")
def test_no_session_is_made_while_the_file_is_broken(caller: Caller, tmp_path: Path) -> None:
    project = caller.project(tmp_path / "work", FILE)
    file = tmp_path / "work" / ".holdfast" / "project.yaml"
    file.write_text("project: [")
    answer = caller.http.post(f"/projects/{project['id']}/sessions", json={})
    assert answer.status_code == 409
    assert caller.http.get(f"/projects/{project['id']}").json()["state"] == "invalid"
    file.write_text(FILE)
    assert caller.session(project["id"])["state"] == "idle"


@pytest.mark.req("K-002")
def test_another_operators_project_does_not_exist(
    api: ApiServer, caller: Caller, tmp_path: Path
) -> None:
    project = caller.project(tmp_path / "work")
    other = api.operator()
    assert other.http.get(f"/projects/{project['id']}").status_code == 404
    assert other.http.get(f"/projects/{project['id']}/sessions").status_code == 404
    assert other.http.post(f"/projects/{project['id']}/sessions", json={}).status_code == 404
    assert other.http.get("/projects").json()["items"] == []
    other.close()


def test_the_schema_needs_no_token(caller: Caller) -> None:
    answer = caller.http.get("/dsl/schema", headers={"Authorization": ""})
    assert answer.status_code == 200
    assert "primary" in answer.json()["properties"]
