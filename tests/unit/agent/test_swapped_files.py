"""File tools while somebody swaps the folder, a folder in it or a file for a link to a secret."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from holdfast.agent.conversation import ToolCall
from holdfast.agent.tools.files import FILE_TOOLS, run_file_tool
from holdfast.agent.tools.outcome import ToolOutcome
from holdfast.agent.tools.specs import BY_NAME
from tests.support.attackers.rounds import PERSISTENCE
from tests.support.attackers.swapper import swapping

ROUNDS = {"read_file": 2000, "write_file": 200, "edit_file": 150, "list_files": 1500, "grep": 100}
ROUNDS_OF_TWO = 60
ROUNDS_MAX = 200_000 * PERSISTENCE
SECRET = "the secret of somebody else"


@pytest.fixture
def work(tmp_path: Path) -> Path:
    for folder, text in (("work", "own text"), ("elsewhere", SECRET)):
        (tmp_path / folder / "sub").mkdir(parents=True)
        for name in ("file", f"name-of-{folder}"):
            (tmp_path / folder / "sub" / name).write_text(text + "\n")
    return tmp_path / "work"


def of_the_root(work: Path) -> tuple[Path, Path]:
    """The working directory itself and a link beside it."""
    link = work.parent / "link"
    link.symlink_to(work.parent / "elsewhere")
    return work, link


def of_a_folder(work: Path) -> tuple[Path, Path]:
    """A folder in it and a link, at the same place."""
    (work / "link").symlink_to(work.parent / "elsewhere" / "sub")
    return work / "sub", work / "link"


def of_a_file(work: Path) -> tuple[Path, Path]:
    """A file in it and a link."""
    (work / "sub" / "link").symlink_to(work.parent / "elsewhere" / "sub" / "file")
    return work / "sub" / "file", work / "sub" / "link"


ARGUMENTS: dict[str, dict[str, Any]] = {
    "read_file": {"path": "sub/file"},
    "write_file": {"path": "sub/file", "content": "own text\n"},
    "edit_file": {"path": "sub/file", "old_string": "e", "new_string": "e2", "replace_all": True},
    "list_files": {"path": "sub"},
    "grep": {"path": "sub", "pattern": "secret|own"},
}


@pytest.mark.parametrize("swap", [of_the_root, of_a_folder, of_a_file])
@pytest.mark.parametrize("tool", list(ARGUMENTS))
def test_a_swap_shows_no_secret_and_changes_nothing_outside(
    work: Path, tool: str, swap: Callable[[Path], tuple[Path, Path]]
) -> None:
    outside = work.parent / "elsewhere" / "sub"
    worked = 0
    with swapping(*swap(work)):
        # A swapper that waits for a processor leaves the link in place for many rounds.
        for round_number in itertools.count():
            if round_number >= ROUNDS[tool] * PERSISTENCE and (
                worked or round_number >= ROUNDS_MAX
            ):
                break
            outcome = call(work, tool)
            worked += not outcome.is_error
            assert SECRET not in outcome.text
            assert "name-of-elsewhere" not in outcome.text
    assert worked > 0, "the attack must leave some calls that succeed, else nothing was tried"
    assert sorted(path.name for path in outside.iterdir()) == ["file", "name-of-elsewhere"]
    assert {path.read_text() for path in outside.iterdir()} == {SECRET + "\n"}


def call(work: Path, tool: str) -> ToolOutcome:
    function = {spec.name: function for spec, function in FILE_TOOLS}[tool]
    arguments = BY_NAME[tool].parse(ToolCall("", tool, ARGUMENTS[tool]))
    if tool == "edit_file" and (work / "sub" / "file").is_file():
        # Each round begins with a small file.
        run_file_tool(
            {spec.name: one for spec, one in FILE_TOOLS}["write_file"],
            BY_NAME["write_file"].parse(ToolCall("", "write_file", ARGUMENTS["write_file"])),
            work,
        )
    return run_file_tool(function, arguments, work)


def test_two_sessions_in_one_swapped_folder_read_only_whole_own_texts(work: Path) -> None:
    texts = ["first " * 2000, "second " * 2000]
    seen: list[str] = []

    def session(text: str) -> None:
        functions = {spec.name: function for spec, function in FILE_TOOLS}
        for round_number in itertools.count():
            if round_number >= ROUNDS_OF_TWO * PERSISTENCE and (seen or round_number >= ROUNDS_MAX):
                return
            for name, given in (
                ("write_file", {"path": "sub/file", "content": text}),
                ("read_file", {"path": "sub/file"}),
            ):
                arguments = BY_NAME[name].parse(ToolCall("", name, given))
                outcome = run_file_tool(functions[name], arguments, work)
                if name == "read_file" and isinstance(outcome.output, dict):
                    seen.append(outcome.output["content"])

    with swapping(*of_a_folder(work)), ThreadPoolExecutor(2) as sessions:
        list(sessions.map(session, texts))
    assert seen, "the attack must leave some calls that succeed"
    assert set(seen) <= {*texts, "own text\n"}
    assert (work.parent / "elsewhere" / "sub" / "file").read_text() == SECRET + "\n"
