"""Rules about files: hidden ones do not exist, sealed ones cannot be written, by any name."""

from __future__ import annotations

import os
import socket
import threading
from pathlib import Path
from typing import Any

import pytest

from holdfast.agent.conversation import ToolCall
from holdfast.agent.tools.files import FILE_TOOLS, run_file_tool
from holdfast.agent.tools.outcome import ToolOutcome
from holdfast.agent.tools.specs import BY_NAME
from holdfast.folders.access import Access, Identity, Judge, Rules

RULES = Rules(hidden=("parent/secrets", "token"), read_only=("docs",), read_write=("docs/made",))
HOW: dict[str, dict[str, Any]] = {
    "read_file": {},
    "write_file": {"content": "x"},
    "edit_file": {"old_string": "key", "new_string": "x"},
    "list_files": {},
    "grep": {"pattern": "."},
}


@pytest.fixture
def work(tmp_path: Path) -> Path:
    folder = tmp_path / "work"
    for name in ("parent/secrets/inner", "docs/made", ".holdfast"):
        (folder / name).mkdir(parents=True)
    for name in ("parent/secrets/key", "parent/secrets/inner/key", "token", "docs/page"):
        (folder / name).write_text("the key\n")
    (folder / ".holdfast" / "project.yaml").write_text("project: key\n")
    return folder


def call(work: Path, tool: str, rules: Rules = RULES, **given: Any) -> ToolOutcome:
    function = {spec.name: function for spec, function in FILE_TOOLS}[tool]
    return run_file_tool(function, BY_NAME[tool].parse(ToolCall("", tool, given)), work, rules)


HIDDEN = ["parent/secrets", "parent/secrets/key", "parent/secrets/inner/key", "token", "link/key"]


@pytest.mark.parametrize("tool", list(HOW))
@pytest.mark.parametrize("path", HIDDEN)
def test_a_hidden_path_does_not_exist_for_any_tool(work: Path, tool: str, path: str) -> None:
    (work / "link").symlink_to("parent/secrets")
    outcome = call(work, tool, path=path, **HOW[tool])
    assert outcome.is_error
    assert "No such file" in outcome.text
    assert (work / "parent/secrets/key").read_text() == "the key\n"


def test_no_listing_and_no_search_of_a_folder_shows_what_is_hidden_in_it(work: Path) -> None:
    texts = [
        call(work, "list_files", path=".").text,
        call(work, "list_files", path="parent").text,
        call(work, "list_files", glob="**").text,
        call(work, "grep", pattern="the").text,
    ]
    assert not [text for text in texts if "secrets" in text or "token" in text]
    assert "docs/page:1:the key" in texts[-1]


@pytest.mark.parametrize("tool", ["read_file", "grep"])
def test_a_rename_of_its_parent_reveals_no_hidden_folder(work: Path, tool: str) -> None:
    call(work, "list_files")
    (work / "parent").rename(work / "other")
    (work / "token").rename(work / "renamed")
    (work / "again").hardlink_to(work / "renamed")
    for path in ("other/secrets/key", "other/secrets/inner/key", "renamed", "again"):
        assert "the key" not in call(work, tool, path=path, **HOW[tool]).text
    assert "secrets" not in call(work, "list_files", path="other").text
    assert "other" not in call(work, "grep", pattern="key").text


@pytest.mark.parametrize("tool", ["write_file", "edit_file"])
@pytest.mark.parametrize("path", ["docs/page", ".holdfast/project.yaml", "sub/.holdfast/new/x"])
@pytest.mark.parametrize("rules", [RULES, Rules(read_only=("docs",), read_write=(".holdfast",))])
def test_a_read_only_path_is_read_and_not_written(
    work: Path, tool: str, path: str, rules: Rules
) -> None:
    outcome = call(work, tool, rules, path=path, **HOW[tool])
    assert outcome.is_error
    if (work / path).exists():
        assert "read-only" in outcome.text
        assert "key" in call(work, "read_file", rules, path=path).text
    assert not (work / "sub").exists()


def test_the_rules_of_the_project_are_never_written_even_without_a_cage(work: Path) -> None:
    (work / "link").symlink_to(".holdfast")
    for path in (".holdfast/project.yaml", "link/project.yaml", ".HOLDFAST/x", "link/new"):
        assert call(work, "write_file", Rules(), path=path, content="x").is_error
    assert (work / ".holdfast/project.yaml").read_text() == "project: key\n"
    assert [path.name for path in (work / ".holdfast").iterdir()] == ["project.yaml"]
    inside = call(work / ".holdfast", "write_file", Rules(), path="project.yaml", content="x")
    assert "read-only" in inside.text


def test_a_deeper_rule_opens_a_part_of_a_read_only_folder(work: Path) -> None:
    assert not call(work, "write_file", path="docs/made/x", content="x").is_error
    assert (work / "docs/made/x").read_text() == "x"


def test_a_secret_place_inside_the_folder_is_hidden_without_any_cage(work: Path) -> None:
    rules = Rules(secret=(str(work / "parent"),))
    assert "No such file" in call(work, "read_file", rules, path="parent/secrets/key").text
    assert "parent" not in call(work, "list_files", rules).text


def test_an_inode_number_that_is_used_again_hides_nobody_else(work: Path) -> None:
    status = (work / "token").stat()
    judge = Judge(files={Identity(status.st_dev, status.st_ino, 1): Access.HIDDEN})
    descriptor = os.open(work / "token", os.O_PATH)
    assert judge.of_file(descriptor, os.fstat(descriptor), Access.WRITE) is Access.WRITE
    os.close(descriptor)


@pytest.mark.parametrize("path", ["pipe", "socket", "device", "sparse"])
def test_what_is_no_plain_file_is_refused_without_waiting(work: Path, path: str) -> None:
    os.mkfifo(work / "pipe")
    with socket.socket(socket.AF_UNIX) as listening, (work / "sparse").open("wb") as sparse:
        sparse.truncate(10 << 30)
        here = Path.cwd()
        os.chdir(work)  # the path of a socket is short
        listening.bind("socket")
        os.chdir(here)
        try:
            os.mknod(work / "device", 0o20666, os.makedev(1, 5))
        except PermissionError:
            (work / "device").symlink_to("pipe")
        outcomes: list[ToolOutcome] = []
        for tool in ("read_file", "edit_file", "grep"):
            given = {"path": path, **HOW[tool]}
            thread = threading.Thread(
                target=lambda tool=tool, given=given: outcomes.append(call(work, tool, **given)),
                daemon=True,
            )
            thread.start()
            thread.join(20)
        assert [outcome.is_error for outcome in outcomes] == [True] * 3
        assert all("regular file" in one.text or "16 MiB" in one.text for one in outcomes)
