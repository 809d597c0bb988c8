"""What one operator may keep: over the quota a creation is refused in words, and others go on."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.storage.projects import quotas
from tests.support.servers.api_server import ApiServer, Caller


@pytest.fixture
def small(own_api: ApiServer) -> Iterator[Caller]:
    """An operator of a server where everybody may keep two of each."""
    limits: dict[quotas.Kind, int] = {"sessions": 2, "projects": 2, "aliases": 2}
    own_api.store.write(lambda db: quotas.set_limits(db, limits))
    found = own_api.operator()
    yield found
    found.close()


def test_a_session_over_the_quota_is_refused_until_one_is_purged(
    small: Caller, tmp_path: Path
) -> None:
    project = small.project(tmp_path / "work")["id"]
    first, _ = (small.session(project)["id"] for _ in range(2))
    for body in ({}, {"resume_from": first}):
        answer = small.http.post(f"/projects/{project}/sessions", json=body)
        assert answer.status_code == 409, answer.text
        assert "sessions_per_operator" in answer.json()["error"]["message"]
    other = small.api.operator()
    other.session(other.project(tmp_path / "other")["id"])
    other.close()
    assert small.http.post(f"/sessions/{first}/purge?confirm=true").status_code == 200
    small.session(project)


def test_an_import_counts_like_any_other_session(small: Caller, tmp_path: Path) -> None:
    project = small.project(tmp_path / "work")["id"]
    gone = small.session(project)["id"]
    exported = small.http.get(f"/sessions/{gone}/export").json()
    small.http.post(f"/sessions/{gone}/purge?confirm=true")
    for _ in range(2):
        small.session(project)
    answer = small.http.post("/sessions/import", content=json.dumps(exported))
    assert (answer.status_code, answer.json()["error"]["details"]) == (409, {"limit": 2})


def test_projects_and_aliases_have_quotas_too(small: Caller, tmp_path: Path) -> None:
    projects = [small.project(tmp_path / name) for name in ("one", "two")]
    (tmp_path / "three").mkdir()
    body = {"path": str(tmp_path / "three")}
    assert small.http.post("/projects/load", json=body).status_code == 409
    small.project(tmp_path / "two")
    session = small.session(projects[0]["id"])["id"]
    statuses = [
        small.http.put(f"/aliases/{name}", json={"session_id": session}).status_code
        for name in ("a", "b", "c", "a")
    ]
    assert statuses == [200, 200, 409, 200]
