"""`holdfast memory …` with the server doubled: what people see."""

from __future__ import annotations

from typing import Any, Self

import pytest

from holdfast.cli import connection
from holdfast.cli.commands import memory

HIT = {"path": "memory/tea.md", "start_line": 3, "end_line": 5, "score": 0.8125,
       "snippet": "the \x1b[31mkettle\nstands"}  # fmt: skip
STATUS = {
    "path": "/home/m.sqlite", "dirty": True, "provider": "none", "model": "fts-only", "files": 2,
    "chunks": 4, "bytes": 2048, "last_sync_at": None, "last_error": "it broke",
    "warnings": ["extra path '/etc' is ignored"],
    "sync": {"state": "idle", "done": None, "total": None},
}  # fmt: skip
REPORT = {"files": 2, "files_changed": 1, "files_removed": 1, "chunks": 4, "reindexed": True,
          "reason": "forced", "fell_back": None, "provider": "none"}  # fmt: skip


class Server:
    """Answers what a test gave it, and keeps what it was asked."""

    def __init__(self, *answers: dict[str, Any]) -> None:
        self.answers = list(answers)
        self.asked: list[tuple[str, Any]] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing to close."""

    def post(self, path: str, body: Any = None) -> dict[str, Any]:
        self.asked.append((path, body))
        return self.answers.pop(0)

    def get(self, path: str) -> dict[str, Any]:
        self.asked.append((path, None))
        return self.answers.pop(0)


def serve(monkeypatch: pytest.MonkeyPatch, *answers: dict[str, Any]) -> Server:
    server = Server(*answers)
    monkeypatch.setattr(connection, "connect", lambda **_: server)
    return server


def test_hits_are_lines_without_control_characters(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    answer = {"items": [HIT], "stale": True, "synced": False, "warnings": ["words only"]}
    server = serve(monkeypatch, answer)
    memory.search("a/b", ["blue", "kettle"], limit=3, min_score=None, as_json=False)
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "memory/tea.md:3-5  0.81"
    assert lines[1] == "  the \ufffd[31mkettle stands"
    assert "not indexed yet" in lines[2]
    assert lines[3] == "warning: words only"
    body = {"query": "blue kettle", "limit": 3, "min_score": None}
    assert server.asked == [("/memory/a%2Fb/search", body)]


def test_a_sync_is_looked_at_until_it_is_over(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(memory, "LOOK_EVERY_S", 0)
    going_on = {**STATUS, "sync": {"state": "running", "done": 1, "total": 9}}
    serve(monkeypatch, {"state": "running", "report": None}, going_on, STATUS)
    memory.sync("home", force=False, no_wait=False, as_json=False)
    assert capsys.readouterr().out == "done\n"
    serve(monkeypatch, {"state": "done", "report": REPORT})
    memory.sync("home", force=True, no_wait=False, as_json=False)
    said = "2 documents (1 changed, 1 gone), 4 chunks; built anew: forced\n"
    assert capsys.readouterr().out == said


def test_a_status_says_how_far_it_is_and_what_is_wrong(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    serve(monkeypatch, STATUS)
    memory.status("home", as_json=False)
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "behind; last sync -"
    assert lines[1] == "2 documents, 4 chunks, 2.0 KiB"
    assert lines[-2:] == ["last error: it broke", "warning: extra path '/etc' is ignored"]
    going_on = {**STATUS, "sync": {"state": "running", "done": 1, "total": 9}}
    serve(monkeypatch, going_on)
    memory.status("home", as_json=False)
    assert "syncing, 1 of 9" in capsys.readouterr().out
