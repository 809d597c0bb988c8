"""Pipes, devices and giants in the place of a project's files: refused in words, nothing hangs."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import httpx2
import pytest

from api.routes.operating import health
from tests.support.servers.api_server import ApiServer, Caller

HEALTHZ_TIMEOUT_S = 30.0


@pytest.mark.parametrize("name", ["project.yaml", "project.local.yaml"])
@pytest.mark.parametrize("kind", ["pipe", "zeros", "secret", "huge"])
def test_an_odd_project_file_is_refused_in_words(
    caller: Caller, tmp_path: Path, name: str, kind: str
) -> None:
    (tmp_path / "secret").write_text("version: hush")
    folder = tmp_path / "work"
    (folder / ".holdfast").mkdir(parents=True)
    path = folder / ".holdfast" / name
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "huge":
        with path.open("wb") as file:
            file.truncate(10 << 30)
    else:
        path.symlink_to("/dev/zero" if kind == "zeros" else tmp_path / "secret")
    answer = caller.http.post("/projects/load", json={"path": str(folder)})
    assert answer.status_code == 422, answer.text
    words = answer.json()["error"]["message"]
    expected = {"pipe": "not a regular file", "huge": "larger than 256 KiB"}
    assert expected.get(kind, "a link in its path leads out of the folder") in words
    assert "hush" not in words


def test_a_project_file_that_becomes_a_pipe_marks_the_project_and_nothing_hangs(
    caller: Caller, tmp_path: Path
) -> None:
    project = caller.project(tmp_path / "work", "version: 1\nproject: demo\n")
    path = tmp_path / "work" / ".holdfast" / "project.yaml"
    path.unlink()
    os.mkfifo(path)
    shown = caller.http.get(f"/projects/{project['id']}").json()
    assert shown["state"] == "invalid"
    assert "not a regular file" in shown["error"]["message"]


def test_readyz_says_when_no_thread_is_free(
    api: ApiServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(health, "THREADS_TIMEOUT_S", 0.2)
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    stuck: list[asyncio.Future[None]] = []
    assert api.loop is not None

    def hang() -> None:
        with pipe.open("rb"):
            pass

    async def occupy() -> None:
        for _ in range(64):
            stuck.append(asyncio.get_running_loop().run_in_executor(None, hang))

    asyncio.run_coroutine_threadsafe(occupy(), api.loop).result(30)
    try:
        answer = httpx2.get(f"{api.url}/readyz", timeout=HEALTHZ_TIMEOUT_S, trust_env=False)
    finally:
        while not all(one.done() for one in stuck):
            os.close(os.open(pipe, os.O_RDWR | os.O_NONBLOCK))
    assert answer.status_code == 503
    assert "threads" in answer.json()["error"]["details"]
    again = httpx2.get(f"{api.url}/readyz", timeout=HEALTHZ_TIMEOUT_S, trust_env=False)
    assert "threads" not in again.text
