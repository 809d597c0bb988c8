"""Snapshots of working directories: saved at checkpoints and runs, brought back by a rollback.

A snapshot is a commit in a git folder of ours: the files that .gitignore does not exclude, with
their modes and links, and in its message the paths that were too large to save. What was not saved
is never overwritten or deleted.
"""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from activities.shadow_git import GitTrouble, ShadowGit, TooMany

FILES_MAX = 20_000
FILE_BYTES_MAX = 16 * 1024 * 1024
TOTAL_BYTES_MAX = 512 * 1024 * 1024
LISTED_MAX = 1000
IGNORE_FILE = b".gitignore"


@dataclass(frozen=True)
class Taken:
    """A snapshot's id, or None with the reason; `skipped` are paths that it does not hold."""

    tree: str | None
    note: str = ""
    skipped: tuple[str, ...] = ()


@dataclass
class Restoration:
    """What a restore did. `undo_tree` brings back what was there before it."""

    restored: list[str] = field(default_factory=list)
    deleted: list[str] = field(default_factory=list)
    not_undone: list[str] = field(default_factory=list)
    undo_tree: str | None = None


@dataclass(frozen=True)
class Limits:
    """How much is saved: beyond the first or last nothing, beyond the second not that file."""

    files: int = FILES_MAX
    file_bytes: int = FILE_BYTES_MAX
    total_bytes: int = TOTAL_BYTES_MAX


class Trees:
    """The snapshots of every working directory, under one folder of the home."""

    def __init__(
        self, root: Path, *, hidden: Sequence[Path] = (), limits: Limits | None = None
    ) -> None:
        self._root = root
        self._hidden = tuple(path.resolve() for path in hidden)
        self._limits = limits or Limits()

    def snapshot(self, working_directory: str | Path) -> str | None:
        """The id of a snapshot, or None when there can be none."""
        return self.take(working_directory).tree

    def take(self, working_directory: str | Path) -> Taken:
        """Save the files as they are; quick when nothing changed, refused when there are too many."""
        folder = Path(working_directory)
        if not folder.is_dir():
            return Taken(None, "the working directory is not a folder on this machine")
        git = self._git(folder)
        try:
            with git.locked():
                return self._save(git)
        except TooMany:
            return Taken(None, f"more than {self._limits.files} files; nothing was saved")
        except (GitTrouble, OSError) as error:
            return Taken(None, f"the files could not be saved: {error}")

    def restore(self, working_directory: str | Path, tree: str) -> Restoration:
        """Bring the files of a snapshot back, after saving those that are there now."""
        folder = Path(working_directory)
        if not folder.is_dir():
            return Restoration(not_undone=["the working directory is not a folder any more"])
        git = self._git(folder)
        try:
            with git.locked():
                return self._restore(git, tree)
        except TooMany:
            words = f"more than {self._limits.files} files: they could not be saved first"
            return Restoration(not_undone=[words])
        except (GitTrouble, OSError) as error:
            return Restoration(not_undone=[f"the files could not be restored: {error}"])

    def _git(self, folder: Path) -> ShadowGit:
        return ShadowGit(self._root, folder.resolve(), hidden=self._hidden)

    def _save(self, git: ShadowGit, also: Iterable[bytes] = ()) -> Taken:
        listing = ("ls-files", "-z", "--cached", "--others", "--exclude-standard")
        paths = git.listed(*listing, count_max=2 * self._limits.files)
        saved, dropped, skipped = self._sort(git.work_tree, dict.fromkeys([*paths, *also]))
        if dropped:
            git.run("update-index", "-z", "--force-remove", "--stdin", stdin=_joined(dropped))
        update = ("update-index", "-z", "--add", "--remove", "--replace", "--stdin")
        git.run(*update, stdin=_joined(saved))
        tree = git.run("write-tree").decode().strip()
        message = json.dumps({"skipped": skipped}).encode()
        commit = git.run("commit-tree", tree, stdin=message).decode().strip()
        git.run("update-ref", f"refs/snapshots/{commit}", commit)
        note = f"{len(skipped)} paths are too large or unreadable" if skipped else ""
        return Taken(commit, note, tuple(skipped))

    def _sort(
        self, root: Path, paths: Iterable[bytes]
    ) -> tuple[list[bytes], list[bytes], list[str]]:
        """Paths to save, paths to forget, and paths that are there but cannot be saved."""
        saved: list[bytes] = []
        dropped: list[bytes] = []
        skipped: list[str] = []
        total = 0
        folders: dict[bytes, bool] = {b"": True}
        base = os.fsencode(root)
        for path in paths:
            found = _stat(base, path, folders)
            if found is None or stat.S_ISDIR(found.st_mode):
                dropped.append(path)
            elif not _can_be_saved(base, path, found, self._limits.file_bytes):
                dropped.append(path)
                skipped.append(_shown(path))
            else:
                saved.append(path)
                total += found.st_size
            if path.endswith(b"/"):
                skipped.append(_shown(path))
            if len(saved) > self._limits.files:
                raise TooMany
        if total > self._limits.total_bytes:
            raise GitTrouble(f"more than {self._limits.total_bytes >> 20} MiB of files")
        return saved, dropped, skipped

    def _restore(self, git: ShadowGit, tree: str) -> Restoration:
        held = git.listed("ls-tree", "-r", "-z", "--name-only", tree, count_max=FILES_MAX * 2)
        undo = self._save(git, also=held)
        assert undo.tree is not None, "a failed save raises"
        work = _Restore(git, tree, undo.tree, _skipped_in(git, tree))
        work.run()
        after = self._save(git)
        assert after.tree is not None, "a failed save raises"
        work.check(after.tree)
        return work.answer()


class _Restore:
    """One restore: what differs, and what of it can be changed without losing anything."""

    def __init__(self, git: ShadowGit, tree: str, undo: str, untouchable: set[str]) -> None:
        self._git = git
        self._tree = tree
        self._undo = undo
        self._untouchable = untouchable
        self._base = os.fsencode(git.work_tree)
        self._wanted, self._surplus = self._differences(undo)
        self._restored: list[bytes] = []
        self._deleted: list[bytes] = []
        self._left: dict[bytes, str] = {}

    def run(self) -> None:
        """Ignore files first: they decide what may be deleted. Then deletions make room."""
        self._git.run("read-tree", self._tree, index="restore")
        ignore_files = [path for path in self._wanted if os.path.basename(path) == IGNORE_FILE]
        self._check_out(ignore_files)
        ignored = self._ignored(self._surplus)
        for path in self._surplus:
            self._delete(path, ignored=path in ignored)
        self._check_out([path for path in self._wanted if path not in set(ignore_files)])

    def check(self, after: str) -> None:
        """Report what is still different although it should not be."""
        wanted, surplus = self._differences(after)
        for path in (*wanted, *surplus):
            self._left.setdefault(path, "could not be restored")
        self._restored = [path for path in self._restored if path not in self._left]
        self._deleted = [path for path in self._deleted if path not in self._left]

    def answer(self) -> Restoration:
        """The lists, each with a limit."""
        return Restoration(
            restored=_limited([_shown(path) for path in self._restored]),
            deleted=_limited([_shown(path) for path in self._deleted]),
            not_undone=_limited([f"{_shown(path)}: {why}" for path, why in self._left.items()]),
            undo_tree=self._undo,
        )

    def _differences(self, now: str) -> tuple[list[bytes], list[bytes]]:
        """Paths that the snapshot has otherwise, and paths that it does not have."""
        diff = ("diff-tree", "-r", "-z", "--no-renames", "--name-status", now, self._tree)
        words = self._git.run(*diff).split(b"\0")
        wanted: list[bytes] = []
        surplus: list[bytes] = []
        for status, path in zip(words[::2], words[1::2], strict=False):
            (surplus if status == b"D" else wanted).append(path)
        return wanted, surplus

    def _ignored(self, paths: list[bytes]) -> set[bytes]:
        if not paths:
            return set()
        check = ("check-ignore", "-z", "--no-index", "--stdin")
        found = self._git.run(*check, stdin=_joined(paths), accepted=(0, 1))
        return set(found.split(b"\0"))

    def _delete(self, path: bytes, *, ignored: bool) -> None:
        if ignored or _shown(path) in self._untouchable:
            self._left[path] = "was not saved then, so it is left as it is"
            return
        whole = os.path.join(self._base, path)
        try:
            os.unlink(whole)
        except OSError as error:
            self._left[path] = error.strerror or "could not be deleted"
            return
        self._deleted.append(path)
        while path := os.path.dirname(path):
            try:
                os.rmdir(os.path.join(self._base, path))
            except OSError:
                break

    def _check_out(self, paths: list[bytes]) -> None:
        free = []
        for path in paths:
            problem = self._in_the_way(path)
            if problem is None:
                free.append(path)
            else:
                self._left[path] = problem
        if free:
            take = ("checkout-index", "--force", "-z", "--stdin")
            # What one path lacks does not stop the others; `check` finds those that failed.
            self._git.run(*take, stdin=_joined(free), index="restore", accepted=range(256))
            self._restored += free

    def _in_the_way(self, path: bytes) -> str | None:
        """Something unsaved at this path, or where one of its folders should be."""
        whole = os.path.join(self._base, path)
        if os.path.lexists(whole):
            if os.path.isdir(whole) and not os.path.islink(whole):
                return "a folder with files that were not saved is in its place"
            if not self._saved(path):
                return "what is there now is too large to be saved first"
        parent = os.path.dirname(path)
        while parent:
            there = os.path.join(self._base, parent)
            if os.path.lexists(there) and (os.path.islink(there) or not os.path.isdir(there)):
                return "a file that was not saved is in place of its folder"
            parent = os.path.dirname(parent)
        return None

    def _saved(self, path: bytes) -> bool:
        found = self._git.run("ls-files", "-z", "--cached", "--", os.fsdecode(path))
        return bool(found)


def _stat(base: bytes, path: bytes, folders: dict[bytes, bool]) -> os.stat_result | None:
    """The file itself, or None when it is gone or lies behind a link."""
    if not _is_folder(base, os.path.dirname(path.rstrip(b"/")), folders):
        return None
    try:
        return os.lstat(os.path.join(base, path))
    except OSError:
        return None


def _is_folder(base: bytes, folder: bytes, known: dict[bytes, bool]) -> bool:
    if folder not in known:
        above = _is_folder(base, os.path.dirname(folder), known)
        try:
            real = stat.S_ISDIR(os.lstat(os.path.join(base, folder)).st_mode)
        except OSError:
            real = False
        known[folder] = above and real
    return known[folder]


def _can_be_saved(base: bytes, path: bytes, found: os.stat_result, bytes_max: int) -> bool:
    if stat.S_ISLNK(found.st_mode):
        return True
    if not stat.S_ISREG(found.st_mode) or found.st_size > bytes_max:
        return False
    return os.access(os.path.join(base, path), os.R_OK)


def _skipped_in(git: ShadowGit, commit: str) -> set[str]:
    """The paths that a snapshot says it does not hold."""
    message = git.run("cat-file", "commit", commit).partition(b"\n\n")[2]
    return set(json.loads(message)["skipped"])


def _joined(paths: Iterable[bytes]) -> bytes:
    return b"".join(path + b"\0" for path in paths)


def _shown(path: bytes) -> str:
    return path.decode("utf-8", "replace")


def _limited(lines: list[str]) -> list[str]:
    if len(lines) <= LISTED_MAX:
        return lines
    return [*lines[:LISTED_MAX], f"and {len(lines) - LISTED_MAX} more"]
