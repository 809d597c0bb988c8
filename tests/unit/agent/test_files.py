"""File tools: what they do, their limits, and that nothing leads out of the working directory."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.agent.conversation import ToolCall
from holdfast.agent.tools import confined, listing
from holdfast.agent.tools.files import FILE_TOOLS, run_file_tool
from holdfast.agent.tools.outcome import ToolOutcome, ToolProblem
from holdfast.agent.tools.search_client import SEARCHES
from holdfast.agent.tools.specs import BY_NAME
from holdfast.folders.confined import FILE_BYTES_MAX


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    inside = tmp_path / "work"
    (inside / "src" / "deep").mkdir(parents=True)
    (inside / "src" / "a.py").write_text("import os\n\nprint('hello')\n")
    (inside / "src" / "deep" / "b.py").write_text("def hello():\n    return 1\n")
    (inside / "README.md").write_text("# Hello\n")
    (tmp_path / "secret.txt").write_text("secret\n")
    (tmp_path / "outside").mkdir()
    (inside / "leak.txt").symlink_to(tmp_path / "secret.txt")
    (inside / "leak").symlink_to(tmp_path / "outside")
    (inside / "alias.md").symlink_to("README.md")
    return inside


def run(folder: Path, name: str, **arguments: Any) -> ToolOutcome:
    tools = {spec.name: tool for spec, tool in FILE_TOOLS}
    try:
        parsed = BY_NAME[name].parse(ToolCall("", name, arguments))
    except ToolProblem as problem:
        return ToolOutcome(str(problem), is_error=True)
    return run_file_tool(tools[name], parsed, folder)


def answer(folder: Path, name: str, **arguments: Any) -> dict[str, Any]:
    outcome = run(folder, name, **arguments)
    assert not outcome.is_error, outcome.output
    assert isinstance(outcome.output, dict)
    return outcome.output


def trouble(folder: Path, name: str, **arguments: Any) -> str:
    outcome = run(folder, name, **arguments)
    assert outcome.is_error
    return outcome.text


ESCAPES = [
    "../secret.txt",
    "src/../../secret.txt",
    "/etc/passwd",
    "leak.txt",
    "leak/new.txt",
    "leak/../secret.txt",
    "missing/../../secret.txt",
    "src/deep/../../../outside/x",
]


@pytest.mark.parametrize("path", ESCAPES)
@pytest.mark.parametrize(
    ("tool", "more"),
    [
        ("read_file", {}),
        ("write_file", {"content": "x"}),
        ("edit_file", {"old_string": "secret", "new_string": "x"}),
        ("list_files", {}),
        ("grep", {"pattern": "secret"}),
    ],
)
def test_no_path_leads_out(folder: Path, tool: str, more: dict[str, Any], path: str) -> None:
    assert "outside" in trouble(folder, tool, path=path, **more)
    assert (folder.parent / "secret.txt").read_text() == "secret\n"
    assert list((folder.parent / "outside").iterdir()) == []


@settings(
    derandomize=True,
    max_examples=100,
    deadline=None,
)
@given(
    st.lists(
        st.sampled_from(["..", ".", "src", "leak", "leak.txt", "new", "", "/", "~", "alias.md"]),
        min_size=1,
        max_size=6,
    )
)
def test_whatever_the_path_a_place_is_inside(folder: Path, parts: list[str]) -> None:
    with confined.opened(folder) as place:
        try:
            with place.find("/".join(parts)) as found:
                names, inside = found.path, Path(f"/proc/self/fd/{found.folder}").readlink()
        except OSError:
            return
    resolved = os.path.realpath(folder.joinpath(*names))
    assert Path(resolved).is_relative_to(folder)
    assert Path(inside).is_relative_to(folder)


def test_a_link_put_there_after_the_check_is_not_followed(folder: Path) -> None:
    with confined.opened(folder) as place:
        with place.find("src/a.py") as found:
            (folder / "src" / "a.py").unlink()
            (folder / "src" / "a.py").symlink_to(folder.parent / "secret.txt")
            with pytest.raises(OSError, match="regular file"):
                place.read(found)
        with place.find("src/deep/b.py") as found:
            (folder / "src" / "deep").rename(folder / "moved")
            (folder / "src" / "deep").symlink_to(folder.parent / "outside")
            place.write(found, b"x")
    assert (folder / "moved" / "b.py").read_text() == "x"
    assert list((folder.parent / "outside").iterdir()) == []


@pytest.mark.parametrize("path", ["a\0b", "\ud800", "x" * 300, "src/a.py/child", "loop"])
def test_a_path_that_cannot_exist_is_an_answer_and_no_crash(folder: Path, path: str) -> None:
    (folder / "loop").symlink_to("loop")
    assert trouble(folder, "read_file", path=path)
    assert trouble(folder, "write_file", path=path, content="x")


def test_a_link_inside_and_an_absolute_path_inside_work(folder: Path) -> None:
    assert answer(folder, "read_file", path="alias.md")["content"] == "# Hello\n"
    assert answer(folder, "read_file", path=str(folder / "README.md"))["path"] == "README.md"


def test_reading_pages_by_lines_from_one(folder: Path) -> None:
    (folder / "many.txt").write_text("".join(f"line {n}\n" for n in range(1, 3001)))
    first = answer(folder, "read_file", path="many.txt")
    assert (first["offset"], first["lines"], first["next_offset"]) == (1, 2000, 2001)
    page = answer(folder, "read_file", path="many.txt", offset=2999, limit=5)
    assert page["content"] == "line 2999\nline 3000\n"
    assert (page["truncated"], page["total_lines"]) == (False, 3000)
    assert "no line 3001" in trouble(folder, "read_file", path="many.txt", offset=3001)


def test_a_page_is_never_larger_than_a_tool_output_may_be(folder: Path) -> None:
    (folder / "wide.txt").write_text(("x" * 999 + "\n") * 200)
    outcome = run(folder, "read_file", path="wide.txt")
    assert len(outcome.text.encode()) < 32 * 1024
    assert answer(folder, "read_file", path="wide.txt")["next_offset"] > 1
    (folder / "one.txt").write_text('"' * 1_000_000)
    cut = answer(folder, "read_file", path="one.txt")
    assert "cut" in cut["content"]
    assert cut["truncated"] is False


def test_an_empty_file_reads_as_empty(folder: Path) -> None:
    (folder / "empty").write_text("")
    assert answer(folder, "read_file", path="empty")["content"] == ""


def test_what_is_not_a_text_file_is_not_read(folder: Path) -> None:
    (folder / "image.png").write_bytes(b"\x89PNG\0\0")
    os.mkfifo(folder / "pipe")
    with (folder / "huge").open("wb") as file:
        file.truncate(FILE_BYTES_MAX + 1)
    assert "binary" in trouble(folder, "read_file", path="image.png")
    assert "not a regular file" in trouble(folder, "read_file", path="pipe")
    assert "16 MiB" in trouble(folder, "read_file", path="huge")
    assert "a folder" in trouble(folder, "read_file", path="src")
    assert "No such file" in trouble(folder, "read_file", path="missing")
    assert "itself" in trouble(folder, "read_file", path=".")


def test_writing_makes_folders_and_keeps_the_mode(folder: Path) -> None:
    made = answer(folder, "write_file", path="new/dir/run.sh", content="echo ü\n")
    assert made == {"path": "new/dir/run.sh", "bytes": 8, "created": True}
    (folder / "new/dir/run.sh").chmod(0o750)
    assert answer(folder, "write_file", path="new/dir/run.sh", content="x")["created"] is False
    assert stat.S_IMODE((folder / "new/dir/run.sh").stat().st_mode) == 0o750
    assert [entry.name for entry in (folder / "new/dir").iterdir()] == ["run.sh"]


def test_writing_through_an_inner_link_changes_its_target(folder: Path) -> None:
    answer(folder, "write_file", path="alias.md", content="new")
    assert (folder / "alias.md").is_symlink()
    assert (folder / "README.md").read_text() == "new"


def test_a_write_that_fails_leaves_the_file_and_no_rest(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "rename", fail)
    assert "No space" in trouble(folder, "write_file", path="README.md", content="x")
    assert (folder / "README.md").read_text() == "# Hello\n"
    assert not [entry for entry in folder.iterdir() if entry.name.endswith(".tmp")]


def test_a_folder_is_not_overwritten(folder: Path) -> None:
    assert "not a regular file" in trouble(folder, "write_file", path="src", content="x")


def test_an_edit_replaces_one_exact_text(folder: Path) -> None:
    edited = answer(folder, "edit_file", path="src/a.py", old_string="hello", new_string="bye")
    assert edited == {"path": "src/a.py", "replacements": 1}
    assert (folder / "src/a.py").read_text() == "import os\n\nprint('bye')\n"


def test_an_edit_must_be_unique_unless_all_are_meant(folder: Path) -> None:
    (folder / "x.txt").write_text("a\nb\na\n")
    problem = trouble(folder, "edit_file", path="x.txt", old_string="a", new_string="c")
    assert "2 times" in problem
    assert "lines 1, 3" in problem
    done = answer(
        folder, "edit_file", path="x.txt", old_string="a", new_string="c", replace_all=True
    )
    assert done["replacements"] == 2
    assert (folder / "x.txt").read_text() == "c\nb\nc\n"


def test_an_edit_that_changes_nothing_is_refused(folder: Path) -> None:
    same = {"old_string": "hello", "new_string": "hello"}
    assert "same" in trouble(folder, "edit_file", path="src/a.py", **same)
    other = {"old_string": "absent", "new_string": "x"}
    assert "not in src/a.py" in trouble(folder, "edit_file", path="src/a.py", **other)


def test_windows_line_ends_survive_an_edit(folder: Path) -> None:
    (folder / "dos.txt").write_bytes(b"one\r\ntwo\r\n")
    answer(folder, "edit_file", path="dos.txt", old_string="one\ntwo", new_string="1\n2")
    assert (folder / "dos.txt").read_bytes() == b"1\r\n2\r\n"


def test_a_half_surrogate_is_an_answer_and_no_crash(folder: Path) -> None:
    assert "surrogate" in trouble(folder, "write_file", path="x", content="\ud83d")


def test_listing_shows_one_folder_sorted(folder: Path) -> None:
    shown = answer(folder, "list_files")
    assert shown["files"] == ["README.md", "alias.md", "leak", "leak.txt", "src/"]
    assert answer(folder, "list_files", path="src")["files"] == ["src/a.py", "src/deep/"]


@pytest.mark.parametrize(
    ("glob", "expected"),
    [
        ("*.py", ["src/a.py", "src/deep/b.py"]),
        ("src/*.py", ["src/a.py"]),
        ("src/**/*.py", ["src/a.py", "src/deep/b.py"]),
        ("**/b.*", ["src/deep/b.py"]),
        ("[ab].py", ["src/a.py", "src/deep/b.py"]),
        ("[!a].py", ["src/deep/b.py"]),
        ("?.md", []),
        (".git/*", [".git/config"]),
        ("config", []),
    ],
)
def test_a_glob_finds_files_at_any_depth(folder: Path, glob: str, expected: list[str]) -> None:
    (folder / ".git").mkdir()
    (folder / ".git" / "config").write_text("x")
    assert answer(folder, "list_files", glob=glob)["files"] == expected


def test_a_long_listing_is_cut_and_says_so(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listing, "ENTRIES_MAX", 3)
    shown = answer(folder, "list_files")
    assert (len(shown["files"]), shown["truncated"]) == (3, True)
    monkeypatch.setattr(listing, "VISITED_MAX", 1)
    assert "too many" in answer(folder, "list_files")["note"]


def test_a_name_that_is_not_unicode_is_shown_somehow(folder: Path) -> None:
    (folder / os.fsdecode(b"bad\xff.txt")).write_text("x")
    assert "bad\ufffd.txt" in run(folder, "list_files").text


def test_grep_answers_path_line_and_text(folder: Path) -> None:
    found = answer(folder, "grep", pattern="hel+o")
    assert found["matches"] == ["src/a.py:3:print('hello')", "src/deep/b.py:1:def hello():"]
    assert answer(folder, "grep", pattern="hello", glob="b.*")["count"] == 1
    assert answer(folder, "grep", pattern="Hello", path="README.md")["matches"] == [
        "README.md:1:# Hello"
    ]
    assert answer(folder, "grep", pattern="secret")["matches"] == []


def test_grep_skips_binary_files(folder: Path) -> None:
    (folder / "data.bin").write_bytes(b"hello\0hello")
    assert not [m for m in answer(folder, "grep", pattern="hello")["matches"] if "data" in m]
    assert answer(folder, "grep", pattern="hello", path="data.bin")["count"] == 0


def test_grep_stops_at_its_limit(folder: Path) -> None:
    (folder / "many.txt").write_text("needle\n" * 5000)
    found = answer(folder, "grep", pattern="needle")
    assert (found["count"], found["truncated"]) == (200, True)


def test_a_catastrophic_pattern_cannot_hang(folder: Path) -> None:
    (folder / "evil.txt").write_text("a" * 5000 + "!\n")
    asked = {"path": ".", "glob": None, "pattern": "^(a|a?)+$", "budget_s": 0.2}
    with confined.opened(folder) as place:
        found = SEARCHES.search(place, asked)
    assert "out of time" in found["note"]


@pytest.mark.parametrize("pattern", ["(", "[", "*", "(?P<n>x)(?P=m)"])
def test_a_pattern_that_is_none_is_explained(folder: Path, pattern: str) -> None:
    assert "not a valid regular expression" in trouble(folder, "grep", pattern=pattern)


def test_a_glob_of_stars_is_refused(folder: Path) -> None:
    assert "stars" in trouble(folder, "list_files", glob="*a" * 30)


def test_wrong_arguments_are_an_answer(folder: Path) -> None:
    assert "path is missing" in trouble(folder, "read_file")


def test_a_working_directory_that_is_gone_is_an_answer(tmp_path: Path) -> None:
    assert "No such file" in trouble(tmp_path / "gone", "list_files")
