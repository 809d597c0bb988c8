"""Commands over the library, with the server doubled: what people see of it."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Self

import pytest

from holdfast.cli import connection
from holdfast.cli.commands import administration, history, library
from holdfast.cli.exit_codes import BadArguments
from holdfast.cli.hits import print_hits
from holdfast.cli.output import moment, size
from holdfast.client.frames import Frame
from holdfast.domain.errors import NotFound
from tests.support.command_line import run_here
from tests.support.hermes_sample import write_state_db


class Server:
    """Answers from lists that a test filled."""

    def __init__(self, *, events: list[int], frames: list[Frame], progress: list[int]) -> None:
        self.listed: list[dict[str, Any]] = [
            {"seq": seq, "type": f"e{seq}", "at": 0, "data": {}} for seq in events
        ]
        self.frames = frames
        self.progress = progress
        self.exported: list[str] = []
        self.imported: list[Any] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing to close."""

    def session(self, name: str) -> dict[str, Any]:
        return {"id": name}

    def items(self, path: str, *, since: int) -> list[dict[str, Any]]:
        # A page at a time, as a long log comes.
        return [event for event in self.listed if event["seq"] > since][:2]

    def stream(self, session_id: str) -> Iterator[Frame]:
        for frame in self.frames:
            if frame.type == "welcome":
                self.listed.append({"seq": frame.seq, "type": "missed", "at": 0, "data": {}})
            yield frame

    def lines(self, path: str, **_: object) -> Iterator[str]:
        yield from self.exported

    def post(self, path: str, body: Any = None) -> dict[str, Any]:
        if path == "/sessions/import":
            self.imported.append(body)
            if "hermes_path" in body:
                return {"imported": 2, "skipped": 1}
            return {"imported": body["n"] % 2 == 0}
        return self.get(path)

    def get(self, path: str) -> dict[str, Any]:
        done = self.progress.pop(0)
        state = "ready" if done == 200 else "building"
        return {"state": state, "watermark": done, "newest": 200, "behind": 200 - done}


def serve(
    monkeypatch: pytest.MonkeyPatch,
    *,
    events: tuple[int, ...] = (),
    frames: tuple[Frame, ...] = (),
    progress: tuple[int, ...] = (),
) -> Server:
    """Let commands talk to a doubled server."""
    server = Server(events=list(events), frames=list(frames), progress=list(progress))
    monkeypatch.setattr(connection, "connect", lambda **_: server)
    return server


def event(seq: int) -> Frame:
    return Frame("events", f"e{seq}", {"a": seq, "event_id": f"id{seq}", "at": 5}, seq)


@pytest.mark.req("F-023")
def test_a_followed_log_misses_nothing_and_says_nothing_twice(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    frames = (
        Frame("control", "welcome", {}, 4),
        event(3),
        event(5),
        Frame("output", "delta", {}, 9),
        Frame("control", "welcome", {}, 6),
        event(6),
        event(7),
    )
    serve(monkeypatch, events=(1, 2, 3), frames=frames)
    history.log("s", follow=True, as_json=True)
    printed = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [one["seq"] for one in printed] == [1, 2, 3, 4, 5, 6, 7]
    assert printed[4] == {
        "id": "id5", "session_id": "s", "seq": 5, "type": "e5", "at": 5, "data": {"a": 5},
    }  # fmt: skip


def test_a_log_for_people_has_times(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    serve(monkeypatch, events=(1,))
    history.log("s", follow=False, as_json=False)
    assert capsys.readouterr().out == f"     1  {moment(0)}  e1  {{}}\n"


def test_building_the_index_anew_shows_how_far_it_is(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(administration, "LOOK_EVERY_S", 0.0)
    serve(monkeypatch, progress=(0, 50, 55, 120, 200))
    administration.reindex()
    assert capsys.readouterr().out.splitlines() == [
        "25 % of 200 messages",
        "60 % of 200 messages",
        "ready: 0 messages to go",
    ]
    serve(monkeypatch, progress=(0,))
    administration.reindex(no_wait=True)
    assert capsys.readouterr().out == "building: 200 messages to go\n"


@pytest.mark.req("H-039")
def test_all_sessions_go_to_a_file_and_come_back_line_by_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    server = serve(monkeypatch)
    server.exported = [
        json.dumps({"n": number, "progress": {"done": number, "total": 20}})
        for number in range(1, 21)
    ]
    file = tmp_path / "all.ndjson"
    library.export(session=None, format_="json", source=None, output=file, redact=False)
    told = capsys.readouterr().err.splitlines()
    assert (told[0], told[-1], len(told)) == ("2 of 20 sessions", "20 of 20 sessions", 10)
    library.import_sessions(file, as_json=False)
    assert [document["n"] for document in server.imported] == list(range(1, 21))
    assert capsys.readouterr().out == "imported 10, 10 were here already\n"
    pretty = tmp_path / "one.json"
    pretty.write_text(json.dumps({"n": 2}, indent=2))
    library.import_sessions(pretty, as_json=False)
    assert capsys.readouterr().out == "imported 1\n"


def test_a_state_db_is_named_to_the_server_and_not_sent(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    server = serve(monkeypatch)
    write_state_db(tmp_path / "state.db").close()
    monkeypatch.chdir(tmp_path)
    library.import_sessions(Path("state.db"), as_json=False)
    assert server.imported == [{"hermes_path": str((tmp_path / "state.db").resolve())}]
    assert capsys.readouterr().out == "imported 2, 1 were here already\n"


def test_a_file_that_cannot_be_imported_is_refused_in_words(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    server = serve(monkeypatch)
    others = tmp_path / "others.db"
    connection = sqlite3.connect(others)
    connection.execute("CREATE TABLE session (id)")
    connection.close()
    words = tmp_path / "notes.txt"
    words.write_text("no json")
    for file in (others, words):
        with pytest.raises(BadArguments, match=f"{file.name} is neither an export"):
            library.import_sessions(file, as_json=False)
    with pytest.raises(NotFound, match=r"cannot read absent\.json: No such file"):
        library.import_sessions(tmp_path / "absent.json", as_json=False)
    assert server.imported == []


HIT = {
    "session_id": "01S", "role": "operator", "timestamp": None, "title": "[bold]Mine[/]",
    "snippet": "a >>>match<<< and\n>> \x1b[31m",
}  # fmt: skip


@pytest.mark.req("H-033")
def test_hits_come_with_what_one_should_know_of_them(capsys: pytest.CaptureFixture[str]) -> None:
    answer = {"items": [HIT], "next_cursor": "1", "complete": False, "matched": "substrings"}
    print_hits({**answer, "index": {"behind": 7}})
    assert capsys.readouterr().out.splitlines() == [
        "01S  operator  -  [bold]Mine[/]",
        "  a match and >> \ufffd[31m",
        "no such word; found inside words",
        "there is more: --limit",
        "the index is being built: 7 messages were not searched",
    ]
    print_hits({"items": [], "next_cursor": None, "complete": True, "matched": "words"})
    assert capsys.readouterr().out == "nothing found\n"


@pytest.mark.req("H-033")
@pytest.mark.parametrize(
    ("no_colour", "terminal", "shown"),
    [
        ("1", "xterm", ">>>match<<<"),
        ("", "dumb", ">>>match<<<"),
        ("", "xterm", "\x1b[1;33mmatch\x1b[0m"),
    ],
)
def test_a_match_stands_out_in_a_terminal_with_and_without_colours(
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    no_colour: str,
    terminal: str,
    shown: str,
) -> None:
    for name in ("FORCE_COLOR", "COLORTERM", "TTY_COMPATIBLE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("NO_COLOR", no_colour)
    monkeypatch.setenv("TERM", terminal)
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    print_hits({"items": [HIT], "next_cursor": None, "complete": True, "matched": "words"})
    assert shown in capsys.readouterr().out


@pytest.mark.parametrize(
    ("number", "words"),
    [(None, "-"), (0, "0 B"), (1536, "1.5 KiB"), (3 * 1024**2, "3.0 MiB"), (2**40, "1024.0 GiB")],
)
def test_sizes_are_read_at_a_glance(number: int | None, words: str) -> None:
    assert size(number) == words


def test_bytes_that_are_no_text_are_refused_in_words() -> None:
    code, out, err = run_here("search", b"\xff".decode("utf-8", "surrogateescape"))
    assert (code, out, err) == (2, "", "holdfast: arguments must be UTF-8\n")
