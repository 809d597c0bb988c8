"""Snapshots of working directories: saved at checkpoints and runs, brought back by a rollback.

A snapshot is a commit in a git folder of ours: the files that .gitignore does not exclude, with
their modes and links, and in its message the paths that were too large to save. What was not saved
is never overwritten or deleted.
"""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import structlog

from activities.trees.restore import Restoration, Restore
from activities.trees.shadow_git import GitTrouble, ShadowGit, TooMany, joined

FILES_MAX = 20_000
FILE_BYTES_MAX = 16 * 1024 * 1024
TOTAL_BYTES_MAX = 512 * 1024 * 1024
SWEEP_TIMEOUT_S = 600.0
GRACE_S = 24 * 60 * 60.0
log = structlog.get_logger()


@dataclass(frozen=True)
class Taken:
    """A snapshot's id, or None with the reason; `skipped` are paths that it does not hold."""

    tree: str | None
    note: str = ""
    skipped: tuple[str, ...] = ()


@dataclass(frozen=True)
class Limits:
    """Too many files or bytes: nothing is saved. A file that is too large: all but that file."""

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

    def take(self, working_directory: str | Path, *, before_restore_of: str | None = None) -> Taken:
        """Save the files as they are; quick when nothing changed, refused when there are many.

        Before a restore also those that it will overwrite, although .gitignore excludes them now.
        """
        folder = Path(working_directory)
        if not folder.is_dir():
            return Taken(None, "the working directory is not a folder on this machine")
        git = self._git(folder)
        try:
            with git.locked():
                return self._save(git, also=_paths_in(git, before_restore_of))
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

    def sweep(self, kept: Collection[str]) -> int:
        """Forget the snapshots that are not in `kept`, and what only they held; how many.

        Those of the last day stay: what was just saved may not be named anywhere yet.
        """
        forgotten = 0
        for folder in sorted(self._root.glob("*")):
            git = ShadowGit.at(folder)
            try:
                with git.locked():
                    forgotten += _forget(git, kept)
            except (GitTrouble, TooMany, OSError) as error:
                log.warning("snapshots.not_swept", folder=folder.name, error=str(error)[:200])
        return forgotten

    def _git(self, folder: Path) -> ShadowGit:
        return ShadowGit(self._root, folder.resolve(), hidden=self._hidden)

    def _save(self, git: ShadowGit, also: Iterable[str] = ()) -> Taken:
        listing = ("ls-files", "-z", "--cached", "--others", "--exclude-standard")
        paths = git.listed(*listing, count_max=2 * self._limits.files)
        saved, dropped, skipped = self._sort(git.work_tree, dict.fromkeys([*paths, *also]))
        if dropped:
            git.run("update-index", "-z", "--force-remove", "--stdin", stdin=joined(dropped))
        update = ("update-index", "-z", "--add", "--remove", "--replace", "--stdin")
        git.run(*update, stdin=joined(saved))
        tree = git.run("write-tree").decode().strip()
        message = json.dumps({"skipped": skipped}).encode()
        commit = git.run("commit-tree", tree, stdin=message).decode().strip()
        git.run("update-ref", f"refs/snapshots/{commit}", commit)
        git.mark_recent(commit)
        note = f"not saved, too large or not plain files: {len(skipped)}" if skipped else ""
        return Taken(commit, note, tuple(skipped))

    def _sort(self, root: Path, paths: Iterable[str]) -> tuple[list[str], list[str], list[str]]:
        """Paths to save, paths to forget, and paths that are there but cannot be saved."""
        saved: list[str] = []
        dropped: list[str] = []
        skipped: list[str] = []
        total = 0
        folders: dict[str, bool] = {"": True}
        for path in paths:
            if path.endswith("/"):
                skipped.append(path)  # a repository of its own
                continue
            found = _stat(f"{root}/", path, folders)
            if found is not None and _can_be_saved(f"{root}/{path}", found, self._limits):
                saved.append(path)
                total += found.st_size
            else:
                dropped.append(path)
                if found is not None and not stat.S_ISDIR(found.st_mode):
                    skipped.append(path)
            if len(saved) > self._limits.files:
                raise TooMany
        if total > self._limits.total_bytes:
            raise GitTrouble(f"more than {self._limits.total_bytes >> 20} MiB of files")
        return saved, dropped, skipped

    def _restore(self, git: ShadowGit, tree: str) -> Restoration:
        undo = self._save(git, also=_paths_in(git, tree))
        assert undo.tree is not None, "a failed save raises"
        work = Restore(git, tree, undo.tree)
        work.run()
        after = self._save(git)
        assert after.tree is not None, "a failed save raises"
        work.check(after.tree)
        return work.answer()


def _paths_in(git: ShadowGit, tree: str | None) -> list[str]:
    if tree is None:
        return []
    return git.listed("ls-tree", "-r", "-z", "--name-only", tree, count_max=2 * FILES_MAX)


def _forget(git: ShadowGit, kept: Collection[str]) -> int:
    refs = git.run("for-each-ref", "--format=%(refname)", "refs/snapshots").decode().split()
    recent = git.recent(GRACE_S)
    names = {ref: ref.rpartition("/")[2] for ref in refs}
    gone = [ref for ref, name in names.items() if name not in kept and name not in recent]
    if gone:
        deletions = "".join(f"delete {ref}\n" for ref in gone)
        git.run("update-ref", "--stdin", stdin=deletions.encode())
        # Under our lock nothing is being saved, so nothing young needs a grace.
        git.run("gc", "--quiet", "--prune=now", timeout_s=SWEEP_TIMEOUT_S)
    return len(gone)


def _stat(base: str, path: str, folders: dict[str, bool]) -> os.stat_result | None:
    """The file itself, or None when it is gone or lies behind a link."""
    if not _is_folder(base, path.rpartition("/")[0], folders):
        return None
    try:
        return os.lstat(base + path)
    except OSError:
        return None


def _is_folder(base: str, folder: str, known: dict[str, bool]) -> bool:
    if folder not in known:
        above = _is_folder(base, folder.rpartition("/")[0], known)
        try:
            real = stat.S_ISDIR(os.lstat(base + folder).st_mode)
        except OSError:
            real = False
        known[folder] = above and real
    return known[folder]


def _can_be_saved(path: str, found: os.stat_result, limits: Limits) -> bool:
    if stat.S_ISLNK(found.st_mode):
        return True
    small = stat.S_ISREG(found.st_mode) and found.st_size <= limits.file_bytes
    return small and os.access(path, os.R_OK)
