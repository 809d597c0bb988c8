"""What changed since a snapshot: every kind of change, and nothing without a limit."""

from __future__ import annotations

from pathlib import Path

import pytest

from activities.trees import differences
from activities.trees.snapshots import Limits, Trees


@pytest.fixture
def work(tmp_path: Path) -> Path:
    folder = tmp_path / "work"
    folder.mkdir()
    for name in ("kept", "gone", "changed"):
        (folder / name).write_text(f"{name}\nsecond line\n")
    (folder / "old name").write_text("".join(f"line {number}\n" for number in range(50)))
    return folder


@pytest.fixture
def trees(tmp_path: Path) -> Trees:
    return Trees(tmp_path / "snapshots", limits=Limits(file_bytes=1024 * 1024 * 2))


def taken(trees: Trees, work: Path) -> str:
    tree = trees.take(work).tree
    assert tree is not None
    return tree


def test_every_kind_of_change_is_told_with_its_lines(work: Path, trees: Trees) -> None:
    before = taken(trees, work)
    (work / "gone").unlink()
    (work / "changed").write_text("changed\nanother line\nthird\n")
    (work / "ümläut \n new").write_text("one\n")
    (work / "binary").write_bytes(b"\0\1\2")
    (work / "old name").rename(work / "new name")
    found = {file.path: file for file in trees.changes(work, before).files}
    told = {
        name: (file.status, file.additions, file.deletions, file.binary)
        for name, file in found.items()
    }
    assert told == {
        "binary": ("added", 0, 0, True),
        "changed": ("modified", 2, 1, False),
        "gone": ("deleted", 0, 2, False),
        "new name": ("renamed", 0, 0, False),
        "ümläut \n new": ("added", 1, 0, False),
    }
    assert found["new name"].old_path == "old name"


def test_a_diff_is_of_one_path_or_of_all_and_paths_are_no_patterns(
    work: Path, trees: Trees
) -> None:
    before = taken(trees, work)
    for name in ("changed", "*"):
        (work / name).write_text("new\n")
    whole = trees.diff(work, before).diff
    assert "b/changed" in whole
    assert "b/*" in whole
    one = trees.diff(work, before, "*").diff
    assert "b/changed" not in one
    assert one.endswith("+new\n")
    assert trees.diff(work, before, "no such path").diff == ""


def test_a_long_diff_is_cut_and_a_huge_file_is_only_named(
    work: Path, trees: Trees, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = taken(trees, work)
    (work / "huge").write_text("words\n" * 300_000)
    assert "Binary files /dev/null and b/huge differ" in trees.diff(work, before).diff
    (work / "larger").write_bytes(b"x" * 3 * 1024 * 1024)
    assert trees.changes(work, before).not_compared == ("larger",)
    monkeypatch.setattr(differences, "DIFF_BYTES_MAX", 100)
    cut = trees.diff(work, before).diff
    assert cut.endswith(differences.CUT)
    assert len(cut) < 100 + len(differences.CUT)
    monkeypatch.setattr(differences, "FILES_MAX", 1)
    found = trees.changes(work, before)
    assert (len(found.files), found.truncated) == (1, False)
    (work / "gone").unlink()
    found = trees.changes(work, before)
    assert (len(found.files), found.truncated) == (1, True)


def test_trouble_is_told_in_words(work: Path, trees: Trees, tmp_path: Path) -> None:
    before = taken(trees, work)
    assert "git" in trees.changes(work, "0" * 40).trouble
    assert trees.changes(tmp_path / "nowhere", before).trouble.startswith("the working directory")
