"""Work-tree snapshots: everything comes back, and nothing unsaved is ever lost."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from activities.trees.snapshots import Limits, Trees

pytestmark = pytest.mark.req("K-066")


@pytest.fixture
def work(tmp_path: Path) -> Path:
    folder = tmp_path / "work"
    folder.mkdir()
    return folder


@pytest.fixture
def trees(tmp_path: Path) -> Trees:
    return Trees(tmp_path / "home" / "snapshots", hidden=[tmp_path / "home"])


def contents(folder: Path) -> dict[str, tuple[str, bytes]]:
    """Every file and link with its mode and bytes; what git keeps aside."""
    found = {}
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        if name.split("/")[0] == ".git":
            continue
        if path.is_symlink():
            found[name] = ("link", os.fsencode(path.readlink()))
        elif path.is_file():
            mode = "executable" if os.access(path, os.X_OK) else "plain"
            found[name] = (mode, path.read_bytes())
    return found


def test_a_restore_brings_back_bytes_modes_links_and_folders(work: Path, trees: Trees) -> None:
    (work / "text.txt").write_bytes(b"one\r\ntwo\n")
    (work / "data.bin").write_bytes(bytes(range(256)) * 64)
    (work / "run.sh").write_text("#!/bin/sh\n")
    (work / "run.sh").chmod(0o755)
    (work / "link").symlink_to("text.txt")
    (work / "dangling").symlink_to("nowhere")
    (work / "a" / "b").mkdir(parents=True)
    (work / "a" / "b" / "deep.txt").write_text("deep")
    (work / "ümläut \n name").write_text("odd")
    (work / ".gitattributes").write_text("* text eol=crlf ident\n*.bin filter=lfs\n")
    before = contents(work)
    tree = trees.take(work).tree
    assert tree is not None

    (work / "text.txt").write_text("changed")
    (work / "data.bin").unlink()
    (work / "run.sh").chmod(0o644)
    (work / "link").unlink()
    (work / "link").write_text("a file now")
    (work / "a" / "b" / "deep.txt").unlink()
    (work / "a" / "b").rmdir()
    (work / "a" / "b").write_text("a file in place of a folder")
    (work / "new" / "folder").mkdir(parents=True)
    (work / "new" / "folder" / "file").write_text("surplus")
    (work / ":x").write_text("surplus")
    done = trees.restore(work, tree)

    assert contents(work) == before
    assert done.not_undone == []
    assert "new/folder/file" in done.deleted
    assert not (work / "new").exists()
    assert {"text.txt", "data.bin", "run.sh", "link", "a/b/deep.txt"} <= set(done.restored)


def test_a_restore_can_be_undone(work: Path, trees: Trees) -> None:
    (work / "kept").write_text("first")
    tree = trees.take(work).tree
    assert tree is not None
    (work / "kept").write_text("second")
    (work / "made").write_text("later")
    before = contents(work)
    undo = trees.take(work, before_restore_of=tree).tree
    assert undo is not None
    trees.restore(work, tree)
    assert contents(work) == {"kept": ("plain", b"first")}
    trees.restore(work, undo)
    assert contents(work) == before


def test_equal_files_give_the_same_snapshot(work: Path, trees: Trees) -> None:
    (work / "file").write_text("same")
    first = trees.take(work).tree
    (work / "file").write_text("other")
    second = trees.take(work).tree
    (work / "file").write_text("same")
    assert first is not None
    assert second != first
    assert trees.take(work).tree == first


def test_ignored_files_are_neither_saved_nor_touched(work: Path, trees: Trees) -> None:
    (work / ".gitignore").write_text("*.log\nbuild/\n")
    (work / "source").write_text("x")
    (work / "a.log").write_text("log")
    tree = trees.take(work).tree
    assert tree is not None
    (work / "a.log").write_text("more log")
    (work / "build").mkdir()
    (work / "build" / "out").write_text("built")
    trees.restore(work, tree)
    assert (work / "a.log").read_text() == "more log"
    assert (work / "build" / "out").read_text() == "built"


def test_a_file_that_was_ignored_then_is_not_deleted_now(work: Path, trees: Trees) -> None:
    (work / ".gitignore").write_text("*.log\n")
    (work / "a.log").write_text("was there all the time")
    tree = trees.take(work).tree
    assert tree is not None
    (work / ".gitignore").unlink()
    done = trees.restore(work, tree)
    assert (work / "a.log").read_text() == "was there all the time"
    assert (work / ".gitignore").read_text() == "*.log\n"
    assert [line.split(":")[0] for line in done.not_undone] == ["a.log"]


def test_a_file_that_is_ignored_now_is_saved_before_it_is_overwritten(
    work: Path, trees: Trees
) -> None:
    (work / "notes").write_text("first")
    tree = trees.take(work).tree
    assert tree is not None
    (work / "notes").unlink()
    assert trees.take(work).tree != tree, "the newest snapshot knows of no notes"
    (work / ".gitignore").write_text("notes\n")
    (work / "notes").write_text("second")
    undo = trees.take(work, before_restore_of=tree).tree
    assert undo is not None
    trees.restore(work, tree)
    assert (work / "notes").read_text() == "first"
    trees.restore(work, undo)
    assert (work / "notes").read_text() == "second"


def test_a_large_file_is_skipped_named_and_never_lost(tmp_path: Path, work: Path) -> None:
    trees = Trees(tmp_path / "snapshots", limits=Limits(file_bytes=100))
    (work / "large").write_bytes(b"x" * 101)
    (work / "grows").write_text("small")
    taken = trees.take(work)
    assert taken.tree is not None
    assert taken.skipped == ("large",)
    assert taken.note
    (work / "large").write_text("shrunk")
    (work / "grows").write_bytes(b"y" * 101)
    done = trees.restore(work, taken.tree)
    assert (work / "large").read_text() == "shrunk"
    assert (work / "grows").read_bytes() == b"y" * 101
    assert sorted(line.split(":")[0] for line in done.not_undone) == ["grows", "large"]


def test_too_many_files_are_refused_with_a_note(tmp_path: Path, work: Path) -> None:
    for number in range(5):
        (work / str(number)).write_text("x")
    taken = Trees(tmp_path / "snapshots", limits=Limits(files=4)).take(work)
    assert taken.tree is None
    assert "more than 4 files" in taken.note
    taken = Trees(tmp_path / "snapshots", limits=Limits(total_bytes=4)).take(work)
    assert taken.tree is None
    assert "MiB" in taken.note


def test_a_missing_folder_has_no_snapshot(tmp_path: Path, trees: Trees) -> None:
    assert trees.take(tmp_path / "gone").tree is None
    assert trees.restore(tmp_path / "gone", "0" * 40).not_undone


def test_an_unknown_snapshot_changes_nothing(work: Path, trees: Trees) -> None:
    (work / "file").write_text("x")
    done = trees.restore(work, "0" * 40)
    assert done.not_undone
    assert contents(work) == {"file": ("plain", b"x")}


def test_what_nothing_can_bring_back_is_swept(
    work: Path, trees: Trees, monkeypatch: pytest.MonkeyPatch
) -> None:
    (work / "file").write_text("kept")
    kept = trees.take(work).tree
    (work / "file").write_text("forgotten")
    forgotten = trees.take(work).tree
    (work / "file").write_text("now")
    assert kept is not None
    assert forgotten is not None
    assert trees.sweep([]) == 0, "what was just saved may not be named yet"
    monkeypatch.setattr("activities.trees.snapshots.GRACE_S", -1.0)
    assert trees.sweep([kept]) == 1
    assert trees.restore(work, forgotten).restored == []
    assert trees.restore(work, kept).restored == ["file"]
    assert (work / "file").read_text() == "kept"


def git(folder: Path, *arguments: str) -> str:
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": str(folder),
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_AUTHOR_NAME": "a",
        "GIT_AUTHOR_EMAIL": "a@b",
        "GIT_COMMITTER_NAME": "a",
        "GIT_COMMITTER_EMAIL": "a@b",
    }
    done = subprocess.run(
        ["git", *arguments], cwd=folder, env=environment, capture_output=True, check=True
    )
    return done.stdout.decode()


def repository_bytes(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted((folder / ".git").rglob("*"))
        if path.is_file()
    }


def test_the_users_own_repository_is_not_touched(
    work: Path, trees: Trees, monkeypatch: pytest.MonkeyPatch
) -> None:
    git(work, "init", "-q")
    (work / "file").write_text("committed")
    git(work, "add", ".")
    git(work, "commit", "-q", "-m", "one")
    (work / "file").write_text("staged")
    git(work, "add", "file")
    hook = work / ".git" / "hooks" / "post-index-change"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text(f"#!/bin/sh\ntouch {work}/hooked\n")
    hook.chmod(0o755)
    (work / ".git" / "info").mkdir(exist_ok=True)
    (work / ".git" / "info" / "exclude").write_text("private\n")
    (work / "private").write_text("secret")
    # A worker may have been started from inside somebody's git command.
    monkeypatch.setenv("GIT_DIR", str(work / ".git"))
    monkeypatch.setenv("GIT_INDEX_FILE", str(work / ".git" / "index"))
    before = repository_bytes(work)
    tree = trees.take(work).tree
    assert tree is not None
    (work / "file").write_text("changed")
    (work / "private").write_text("changed")
    trees.restore(work, tree)
    assert repository_bytes(work) == before
    assert (work / "file").read_text() == "staged"
    assert (work / "private").read_text() == "changed"
    assert not (work / "hooked").exists()


def test_a_repository_inside_is_left_alone(work: Path, trees: Trees) -> None:
    inner = work / "inner"
    inner.mkdir()
    git(inner, "init", "-q")
    (inner / "file").write_text("theirs")
    (work / "own").write_text("x")
    taken = trees.take(work)
    assert taken.tree is not None
    assert taken.skipped == ("inner/",)
    (inner / "file").write_text("changed")
    trees.restore(work, taken.tree)
    assert (inner / "file").read_text() == "changed"


def test_a_link_out_of_the_folder_is_never_followed(
    tmp_path: Path, work: Path, trees: Trees
) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "file").write_text("outside")
    (work / "folder").mkdir()
    (work / "folder" / "file").write_text("inside")
    tree = trees.take(work).tree
    assert tree is not None
    (work / "folder" / "file").unlink()
    (work / "folder").rmdir()
    (work / "folder").symlink_to(outside)
    trees.restore(work, tree)
    assert (outside / "file").read_text() == "outside"
    assert not (work / "folder").is_symlink()
    assert (work / "folder" / "file").read_text() == "inside"


def test_our_own_home_inside_the_folder_is_not_saved(work: Path) -> None:
    home = work / "home"
    trees = Trees(home / "snapshots", hidden=[home])
    (work / "file").write_text("x")
    first = trees.take(work).tree
    assert first is not None
    assert trees.take(work).tree == first
