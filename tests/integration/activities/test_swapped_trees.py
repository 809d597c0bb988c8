"""Snapshots and restores while somebody swaps the folder, or a part of it, for a link."""

from __future__ import annotations

import contextlib
import itertools
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from activities.trees.snapshots import Trees
from tests.support.attackers.rounds import PERSISTENCE
from tests.support.attackers.swapper import swapping

ROUNDS, ROUNDS_MAX = 15 * PERSISTENCE, 500 * PERSISTENCE
SECRET = "the secret of somebody else"
NAMES = tuple(f"file-{number}" for number in range(20))


@pytest.fixture
def work(tmp_path: Path) -> Path:
    for folder, text in (("work", "own text"), ("elsewhere", SECRET)):
        (tmp_path / folder / "sub").mkdir(parents=True)
        for name in NAMES:
            (tmp_path / folder / "sub" / name).write_text(text)
    return tmp_path / "work"


def of_the_root(work: Path) -> tuple[Path, Path]:
    """The working directory itself and a link beside it."""
    (work.parent / "link").symlink_to(work.parent / "elsewhere")
    return work, work.parent / "link"


def of_a_folder(work: Path) -> tuple[Path, Path]:
    """A folder in it and a link, at the same place."""
    (work / "link").symlink_to(work.parent / "elsewhere" / "sub")
    return work / "sub", work / "link"


@pytest.mark.parametrize("swap", [of_the_root, of_a_folder])
def test_a_swap_brings_no_secret_into_a_snapshot_and_no_file_outside(
    work: Path, swap: Callable[[Path], tuple[Path, Path]]
) -> None:
    trees = Trees(work.parent / "home" / "snapshots")
    first = trees.take(work).tree
    assert first is not None
    outside = work.parent / "elsewhere" / "sub"
    taken = 0
    names = swap(work)
    with swapping(*names):
        for count in itertools.count():
            if count >= ROUNDS and (taken or count >= ROUNDS_MAX):
                break
            make_again(*names)
            for name in NAMES:
                try:
                    (work / "sub" / name).write_text(f"own text {count}")
                except OSError:
                    continue
                finally:
                    (outside / name).write_text(SECRET)
            taken += trees.take(work).tree is not None
            trees.restore(work, first)
            assert {path.read_text() for path in outside.iterdir()} == {SECRET}
            assert sorted(path.name for path in outside.iterdir()) == sorted(NAMES)
    assert taken > 0, "the attack must leave some snapshots that succeed"
    assert SECRET not in everything_kept_in(work.parent / "home" / "snapshots")


def make_again(one: Path, other: Path) -> None:
    """A restore removes a link that was not saved; whichever name is free gets it again."""
    for name in (one, other):
        with contextlib.suppress(FileExistsError):
            name.symlink_to(one.parent.parent / "elsewhere" / "sub")


def everything_kept_in(snapshots: Path) -> str:
    """The bytes of every object of every snapshot."""
    command = ["git", "cat-file", "--batch-all-objects", "--batch"]
    texts = []
    for folder in snapshots.iterdir():
        done = subprocess.run(
            command,
            cwd=folder,
            capture_output=True,
            check=True,
            env={
                "GIT_DIR": str(folder),
                "PATH": "/usr/bin:/bin:/usr/local/bin",
            },
        )
        texts.append(done.stdout.decode("utf-8", "replace"))
    whole = "".join(texts)
    assert "own text" in whole
    return whole


def test_a_folder_whose_path_became_a_link_has_no_snapshot(work: Path) -> None:
    trees = Trees(work.parent / "home" / "snapshots")
    tree = trees.take(work).tree
    assert tree is not None
    work.rename(work.parent / "moved")
    work.symlink_to(work.parent / "elsewhere")
    assert trees.take(work).tree is None
    assert trees.restore(work, tree).not_undone
    assert (work.parent / "elsewhere" / "sub" / NAMES[0]).read_text() == SECRET


def test_a_snapshot_reads_again_only_what_changed(
    work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trees = Trees(work.parent / "home" / "snapshots")
    monkeypatch.setattr("activities.trees.blob_cache.SETTLED_NS", -1)
    trees.take(work)
    (work / "sub" / NAMES[3]).write_text("changed text")
    read: list[str] = []
    real = Trees._blob.__globals__["WorkTree"].read

    def counted(tree: object, path: str, limit: int) -> object:
        read.append(path)
        return real(tree, path, limit)

    monkeypatch.setattr("activities.trees.work_tree.WorkTree.read", counted)
    assert trees.take(work).tree is not None
    assert read == [f"sub/{NAMES[3]}"]


def test_excludes_and_ignore_files_of_any_size_are_bounded(work: Path) -> None:
    trees = Trees(work.parent / "home" / "snapshots")
    (work / ".git" / "info").mkdir(parents=True)
    with (work / ".git" / "info" / "exclude").open("wb") as file:
        file.truncate(1 << 40)
    assert trees.take(work).tree is not None
    with (work / ".gitignore").open("wb") as file:
        file.truncate(1 << 40)
    refused = trees.take(work)
    assert refused.tree is None or ".gitignore" in refused.skipped
