"""Nobody brings a session into a place of the kernel: with /proc/sys a tool sets the machine."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.servers.api_server import Caller

PLACES = ["/proc/sys/kernel", "/sys/kernel", "/dev/shm"]


@pytest.mark.parametrize("place", PLACES)
def test_no_place_of_the_kernel_becomes_a_project_or_a_working_directory(
    caller: Caller, tmp_path: Path, place: str
) -> None:
    project = caller.project(tmp_path / "work")["id"]
    (tmp_path / "work/link").symlink_to(place)
    asked = [
        ("/projects/load", {"path": place}),
        (f"/projects/{project}/sessions", {"working_directory": place}),
        (f"/projects/{project}/sessions", {"working_directory": "link"}),
        ("/chats/somebody/one/messages", {"content": "hello", "working_directory": place}),
    ]
    for path, body in asked:
        answer = caller.http.post(path, json=body)
        assert answer.status_code == 400, (path, answer.text)
        assert "is a place of the kernel" in answer.json()["error"]["message"]


def test_no_import_brings_a_session_into_a_place_of_the_kernel(
    caller: Caller, tmp_path: Path
) -> None:
    project = caller.project(tmp_path / "work")["id"]
    session = caller.session(project)["id"]
    exported = caller.http.get(f"/sessions/{session}/export").json()
    assert caller.http.post(f"/sessions/{session}/purge?confirm=true").status_code == 200
    exported["archive"]["session"]["working_directory"] = "/proc/sys/kernel"
    answer = caller.http.post("/sessions/import", content=json.dumps(exported))
    assert answer.status_code == 400, answer.text
    assert "is a place of the kernel" in answer.json()["error"]["message"]
