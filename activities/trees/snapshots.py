"""Snapshots of working directories: saved at checkpoints and runs, brought back by a rollback.

A snapshot is a commit in a git folder of ours: the files that .gitignore does not exclude, with
their modes and links, and in its message the paths that were too large to save. What was not saved
is never overwritten or deleted.
"""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import structlog

from activities.trees.blob_cache import BlobCache
from activities.trees.bundles import Bundle, bundled, unbundled
from activities.trees.differences import FileChange, differences, unified_diff
from activities.trees.restore import Restoration, Restore, skipped_in
from activities.trees.shadow_git import GitTrouble, ShadowGit, TooMany
from activities.trees.work_tree import WorkTree, mode_of

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
class Changed:
    """What is different by now, as files or as a diff; `trouble` says why that cannot be told.

    `not_compared` are paths that snapshots do not hold.
    """

    files: tuple[FileChange, ...] = ()
    diff: str = ""
    truncated: bool = False
    not_compared: tuple[str, ...] = ()
    note: str = ""
    trouble: str = ""


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
        try:
            with self._locked(folder) as (git, tree):
                return self._save(git, tree, also=_paths_in(git, before_restore_of))
        except TooMany:
            return Taken(None, f"more than {self._limits.files} files; nothing was saved")
        except (GitTrouble, OSError) as error:
            return Taken(None, f"the files could not be saved: {error}")

    def restore(self, working_directory: str | Path, snapshot: str) -> Restoration:
        """Bring the files of a snapshot back, after saving those that are there now."""
        folder = Path(working_directory)
        if not folder.is_dir():
            return Restoration(not_undone=["the working directory is not a folder any more"])
        try:
            with self._locked(folder) as (git, tree):
                return self._restore(git, tree, snapshot)
        except TooMany:
            words = f"more than {self._limits.files} files: they could not be saved first"
            return Restoration(not_undone=[words])
        except (GitTrouble, OSError) as error:
            return Restoration(not_undone=[f"the files could not be restored: {error}"])

    def changes(self, working_directory: str | Path, before: str) -> Changed:
        """The files that are not what they were in a snapshot."""

        def compare(git: ShadowGit, now: Taken) -> Changed:
            assert now.tree is not None, "a failed save raises"
            found = differences(git, before, now.tree)
            left_out = sorted({*now.skipped, *skipped_in(git, before)})
            return Changed(found.files, truncated=found.truncated, not_compared=tuple(left_out))

        return self._compared(Path(working_directory), compare)

    def diff(self, working_directory: str | Path, before: str, path: str | None = None) -> Changed:
        """The same as a unified diff, of one path or of all."""

        def compare(git: ShadowGit, now: Taken) -> Changed:
            assert now.tree is not None, "a failed save raises"
            return Changed(diff=unified_diff(git, before, now.tree, path))

        return self._compared(Path(working_directory), compare)

    def _compared(self, folder: Path, compare: Callable[[ShadowGit, Taken], Changed]) -> Changed:
        if not folder.is_dir():
            return Changed(trouble="the working directory is not a folder on this machine")
        try:
            with self._locked(folder) as (git, tree):
                return compare(git, self._save(git, tree))
        except TooMany:
            return Changed(trouble=f"more than {self._limits.files} files")
        except (GitTrouble, OSError) as error:
            return Changed(trouble=str(error))

    def bundle(
        self, working_directory: str, snapshot: str, *, basis: str | None, bytes_max: int
    ) -> Bundle:
        """A snapshot for another machine; TooLarge, or GitTrouble when it cannot be made."""
        with self._git_of(working_directory) as git:
            return bundled(git, snapshot, basis=basis, bytes_max=bytes_max)

    def has(self, working_directory: str, snapshot: str) -> bool:
        """Whether the snapshot can be brought back here."""
        with self._git_of(working_directory) as git:
            return git.has_snapshot(snapshot)

    def unbundle(self, working_directory: str, snapshot: str, bundle: bytes) -> None:
        """Take in a snapshot of another machine; those it builds on come first."""
        with self._git_of(working_directory) as git:
            unbundled(git, snapshot, bundle)

    @contextmanager
    def _git_of(self, working_directory: str) -> Iterator[ShadowGit]:
        git = ShadowGit(self._root / ShadowGit.name_of(Path(working_directory)))
        with git.locked():
            yield git

    def sweep(self, kept: Collection[str]) -> int:
        """Forget the snapshots that are not in `kept`, and what only they held; how many.

        Those of the last day stay: what was just saved may not be named anywhere yet.
        """
        forgotten = 0
        for folder in sorted(self._root.glob("*")):
            git = ShadowGit(folder)
            try:
                with git.locked():
                    forgotten += _forget(git, kept)
            except (GitTrouble, TooMany, OSError) as error:
                log.warning("snapshots.not_swept", folder=folder.name, error=str(error)[:200])
        return forgotten

    @contextmanager
    def _locked(self, folder: Path) -> Iterator[tuple[ShadowGit, WorkTree]]:
        """The folder, opened once for all that follows, and the git folder of its path."""
        with WorkTree.opened(folder) as tree:
            place = self._root / ShadowGit.name_of(folder)
            git = ShadowGit(place, tree, hidden=self._hidden)
            with git.locked():
                yield git, tree

    def _save(self, git: ShadowGit, tree: WorkTree, also: Iterable[str] = ()) -> Taken:
        listing = ("ls-files", "-z", "--cached", "--others", "--exclude-standard")
        paths = git.listed(*listing, count_max=2 * self._limits.files)
        tree.forget()
        chosen, skipped = self._sort(tree, sorted({*paths, *also}))
        cache = BlobCache(git.folder / "blobs.json")
        try:
            written, unreadable = self._written(git, tree, chosen, cache)
        except GitTrouble:
            # A blob that the cache names may be gone: read everything.
            cache.clear()
            written, unreadable = self._written(git, tree, chosen, cache)
        cache.store()
        skipped = sorted([*skipped, *unreadable])
        message = json.dumps({"skipped": skipped}).encode()
        commit = git.run("commit-tree", written, stdin=message).decode().strip()
        git.keep_snapshot(commit)
        note = f"not saved, too large or not plain files: {len(skipped)}" if skipped else ""
        return Taken(commit, note, tuple(skipped))

    def _written(
        self, git: ShadowGit, tree: WorkTree, paths: Iterable[str], cache: BlobCache
    ) -> tuple[str, list[str]]:
        """The files as a tree of git, and those that could not be read after all."""
        lines: list[bytes] = []
        unreadable: list[str] = []
        for path in paths:
            try:
                mode, blob = self._blob(git, tree, path, cache)
                lines.append(f"{mode} {blob} 0\t".encode() + os.fsencode(path) + b"\0")
            except OSError:
                if tree.status(path) is not None:
                    unreadable.append(path)
        draft = git.folder / "next"
        draft.unlink(missing_ok=True)
        git.run("read-tree", "--empty", index="next")
        git.run("update-index", "-z", "--index-info", stdin=b"".join(lines), index="next")
        written = git.run("write-tree", index="next").decode().strip()
        draft.replace(git.folder / "index")
        return written, unreadable

    def _blob(self, git: ShadowGit, tree: WorkTree, path: str, cache: BlobCache) -> tuple[str, str]:
        found = tree.status(path)
        if found is not None and (known := cache.blob(path, found)) is not None:
            return mode_of(found), known
        saved, found = tree.read(path, self._limits.file_bytes)
        blob = git.put(saved.content)
        cache.remember(path, found, blob)
        return saved.mode, blob

    def _sort(self, tree: WorkTree, paths: Iterable[str]) -> tuple[list[str], list[str]]:
        """Paths to save, and paths that are there but cannot be saved."""
        saved: list[str] = []
        skipped: list[str] = []
        total = 0
        for path in paths:
            found = tree.status(path.rstrip("/"))
            if found is None:
                continue
            if path.endswith("/"):
                skipped.append(path)  # a repository of its own
            elif _can_be_saved(tree, path, found, self._limits):
                saved.append(path)
                total += found.st_size
            elif not stat.S_ISDIR(found.st_mode):
                skipped.append(path)
            if len(saved) > self._limits.files:
                raise TooMany
        if total > self._limits.total_bytes:
            raise GitTrouble(f"more than {self._limits.total_bytes >> 20} MiB of files")
        return saved, skipped

    def _restore(self, git: ShadowGit, tree: WorkTree, snapshot: str) -> Restoration:
        undo = self._save(git, tree, also=_paths_in(git, snapshot))
        assert undo.tree is not None, "a failed save raises"
        work = Restore(git, tree, snapshot, undo.tree)
        work.run()
        after = self._save(git, tree)
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


def _can_be_saved(tree: WorkTree, path: str, found: os.stat_result, limits: Limits) -> bool:
    if stat.S_ISLNK(found.st_mode):
        return True
    small = stat.S_ISREG(found.st_mode) and found.st_size <= limits.file_bytes
    return small and tree.can_be_read(path)
