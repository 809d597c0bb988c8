"""Which files are a project's memory."""

from __future__ import annotations

import os
import time
from collections import OrderedDict
from pathlib import Path

import pytest

from holdfast.domain.memory import MAX_FILE_BYTES
from holdfast.memory import documents
from holdfast.memory.documents import DEPTH_MAX, IGNORED, files_of, read_file


def write(path: Path, text: str = "words") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def paths(project: Path, *extra: str) -> list[str]:
    return [one.path for one in files_of(project, extra)]


def test_what_was_hashed_last_is_remembered_and_the_oldest_forgotten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(documents, "HASHES_MAX", 2)
    monkeypatch.setattr(documents, "_hashes", OrderedDict())
    long_ago = time.time() - 60
    for name in ("a.md", "b.md", "c.md"):
        os.utime(write(tmp_path / "memory" / name, name), (long_ago, long_ago))
    paths(tmp_path)
    kept = [Path(path).name for path in documents._hashes]
    assert kept == ["b.md", "c.md"]


@pytest.mark.req("O-020")
def test_the_root_files_and_the_folder_are_memory(tmp_path: Path) -> None:
    for name in ("MEMORY.md", "memory.md", "memory/a.md", "memory/deep/er/b.MD"):
        write(tmp_path / name, name)
    for name in ("README.md", "memory/notes.txt", "docs/c.md", "memory.md.bak"):
        write(tmp_path / name, name)
    assert paths(tmp_path) == ["MEMORY.md", "memory.md", "memory/a.md", "memory/deep/er/b.MD"]


@pytest.mark.req("O-020")
def test_an_extra_path_is_a_folder_or_a_file_and_may_lie_outside(tmp_path: Path) -> None:
    project, outside = tmp_path / "project", tmp_path / "outside"
    write(project / "docs/a.md")
    write(project / "docs/b.txt")
    write(project / "notes.txt")
    write(outside / "c.md")
    found = paths(project, "docs", "notes.txt", str(outside), "missing", "")
    assert found == sorted(["docs/a.md", "notes.txt", str(outside / "c.md")])


@pytest.mark.req("O-022")
@pytest.mark.parametrize("ignored", sorted(IGNORED))
def test_folders_of_tools_are_ignored(tmp_path: Path, ignored: str) -> None:
    write(tmp_path / "memory" / ignored / "a.md")
    write(tmp_path / "docs" / "deep" / ignored / "a.md")
    write(tmp_path / "docs/b.md")
    assert paths(tmp_path, "docs") == ["docs/b.md"]


@pytest.mark.req("O-022")
def test_the_ignored_folders_are_those_that_were_asked_for() -> None:
    names = {".git", "node_modules", ".pnpm-store", ".venv", "venv", ".tox", "__pycache__"}
    assert names == IGNORED


def test_a_link_may_not_lead_out_of_the_project(tmp_path: Path) -> None:
    project, outside = tmp_path / "project", tmp_path / "outside"
    secret = write(outside / "secret.md", "secret")
    write(project / "memory/a.md", "a")
    write(project / "other/b.md", "b")
    (project / "memory/secret.md").symlink_to(secret)
    (project / "memory/folder").symlink_to(outside)
    (project / "memory/inside").symlink_to(project / "other")
    (project / "MEMORY.md").symlink_to(secret)
    assert paths(project) == ["memory/a.md", "memory/inside/b.md"]


def test_a_link_into_an_extra_path_is_followed(tmp_path: Path) -> None:
    project, outside = tmp_path / "project", tmp_path / "outside"
    secret = write(outside / "deep" / "note.txt")
    (project / "memory").mkdir(parents=True)
    (project / "memory/note.md").symlink_to(secret)
    assert paths(project) == []
    assert paths(project, str(outside)) == ["memory/note.md"]


def test_a_link_that_leads_back_ends(tmp_path: Path) -> None:
    write(tmp_path / "memory/a.md")
    (tmp_path / "memory/again").symlink_to(tmp_path / "memory")
    assert paths(tmp_path) == ["memory/a.md"]


def test_one_file_of_two_names_is_one_document(tmp_path: Path) -> None:
    # As on a disk that does not tell MEMORY.md from memory.md.
    (tmp_path / "memory.md").hardlink_to(write(tmp_path / "MEMORY.md"))
    assert paths(tmp_path, ".", "MEMORY.md") == ["MEMORY.md"]


def test_a_file_that_is_too_big_is_left_out(tmp_path: Path) -> None:
    write(tmp_path / "memory/small.md")
    with (tmp_path / "memory/big.md").open("wb") as file:
        file.truncate(MAX_FILE_BYTES + 1)
    assert paths(tmp_path) == ["memory/small.md"]


def test_a_name_that_is_no_text_is_left_out(tmp_path: Path) -> None:
    write(tmp_path / "memory/a.md")
    (tmp_path / "memory" / os.fsdecode(b"\xff.md")).touch()
    assert paths(tmp_path) == ["memory/a.md"]


@pytest.mark.req("O-006")
def test_the_hash_follows_the_content_and_not_the_time(tmp_path: Path) -> None:
    note = write(tmp_path / "MEMORY.md", "one")
    os.utime(note, ns=(10**18, 10**18))
    [first] = files_of(tmp_path, [])
    [cached] = files_of(tmp_path, [])
    os.utime(note, ns=(2 * 10**17, 2 * 10**17))
    [touched] = files_of(tmp_path, [])
    write(note, "two")
    [changed] = files_of(tmp_path, [])
    assert first == cached
    assert first.hash == touched.hash
    assert touched.mtime_ms == 2 * 10**11
    assert changed.hash != first.hash


def test_a_file_written_twice_at_once_is_hashed_again(tmp_path: Path) -> None:
    note = write(tmp_path / "MEMORY.md", "one")
    just_now = time.time_ns() + 10**12  # however long this test is held up
    os.utime(note, ns=(just_now, just_now))
    [first] = files_of(tmp_path, [])
    write(note, "two")
    os.utime(note, ns=(just_now, just_now))
    [second] = files_of(tmp_path, [])
    assert first.hash != second.hash


def test_what_is_not_utf8_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "MEMORY.md").write_bytes(b"caf\xe9")
    [document] = files_of(tmp_path, [])
    assert read_file(tmp_path, document) == "caf\ufffd"


def test_a_project_without_memory_has_none(tmp_path: Path) -> None:
    assert files_of(tmp_path, ["missing"]) == []
    assert files_of(tmp_path / "missing", []) == []


def test_folders_are_followed_to_a_depth(tmp_path: Path) -> None:
    deep = "memory/" + "d/" * DEPTH_MAX
    write(tmp_path / deep / "a.md")
    write(tmp_path / deep / "d" / "b.md")
    assert paths(tmp_path) == [f"{deep}a.md"]
