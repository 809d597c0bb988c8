"""One restore of files: what differs from a snapshot, and what can be changed without loss."""

from __future__ import annotations

import json
import os
import stat
from dataclasses import dataclass, field

from activities.trees.shadow_git import ShadowGit, joined
from activities.trees.work_tree import Saved, WorkTree

LISTED_MAX = 1000
PATHS_MAX = 1_000_000
IGNORE_FILE = ".gitignore"


@dataclass
class Restoration:
    """What a restore did, and what it left as it was."""

    restored: list[str] = field(default_factory=list)
    deleted: list[str] = field(default_factory=list)
    not_undone: list[str] = field(default_factory=list)


class Restore:
    """From the snapshot `undo`, which holds the files as they are now, to the snapshot `tree`."""

    def __init__(self, git: ShadowGit, files: WorkTree, tree: str, undo: str) -> None:
        self._git = git
        self._files = files
        self._tree = tree
        self._never_saved = skipped_in(git, tree)
        self._kept = _entries(git, tree)
        self._saved = set(git.listed("ls-tree", "-rz", "--name-only", undo, count_max=PATHS_MAX))
        self._wanted, self._surplus = self._differences(undo)
        self._restored: list[str] = []
        self._deleted: list[str] = []
        self._left: dict[str, str] = {}

    def run(self) -> None:
        """Ignore files first: they decide what may be deleted. Then deletions make room."""
        first = [path for path in self._wanted if path.rpartition("/")[2] == IGNORE_FILE]
        self._check_out(first)
        ignored = self._ignored(self._surplus)
        for path in self._surplus:
            if path in ignored or path in self._never_saved:
                self._left[path] = "was not saved then, so it stays as it is"
            else:
                self._delete(path)
        done = set(first)
        self._check_out([path for path in self._wanted if path not in done])

    def check(self, after: str) -> None:
        """Report what is still different although it should not be."""
        wanted, surplus = self._differences(after)
        for path in (*wanted, *surplus):
            self._left.setdefault(path, "could not be restored")
        self._restored = [path for path in self._restored if path not in self._left]
        self._deleted = [path for path in self._deleted if path not in self._left]

    def answer(self) -> Restoration:
        """The lists, each with a limit."""
        left = [f"{path}: {why}" for path, why in self._left.items()]
        return Restoration(
            restored=_shown(self._restored),
            deleted=_shown(self._deleted),
            not_undone=_shown(left),
        )

    def _differences(self, now: str) -> tuple[list[str], list[str]]:
        """Paths that the snapshot has otherwise, and paths that it does not have."""
        diff = ("diff-tree", "-r", "-z", "--no-renames", "--name-status", now, self._tree)
        words = self._git.listed(*diff, count_max=PATHS_MAX)
        wanted: list[str] = []
        surplus: list[str] = []
        for status, path in zip(words[::2], words[1::2], strict=True):
            (surplus if status == "D" else wanted).append(path)
        return wanted, surplus

    def _ignored(self, paths: list[str]) -> set[str]:
        if not paths:
            return set()
        check = ("check-ignore", "-z", "--no-index", "--stdin")
        # A leading "./" keeps a name such as ":x" from being read as a pattern.
        asked = joined(f"./{path}" for path in paths)
        found = self._git.run(*check, stdin=asked, accepted=(0, 1)).split(b"\0")
        return {os.fsdecode(path).removeprefix("./") for path in found}

    def _delete(self, path: str) -> None:
        try:
            self._files.delete(path)
            self._deleted.append(path)
        except OSError as error:
            self._left[path] = error.strerror or "could not be deleted"

    def _check_out(self, paths: list[str]) -> None:
        # Folders that were deleted may be held; they are to be made again.
        self._files.forget()
        free = []
        for path in sorted(paths):
            problem = self._in_the_way(path)
            if problem is None:
                free.append(path)
            else:
                self._left[path] = problem
        contents = self._git.contents(self._kept[path][1] for path in free)
        for path, content in zip(free, contents, strict=True):
            try:
                self._files.write(path, Saved(self._kept[path][0], content))
                self._restored.append(path)
            except OSError as error:
                # What one path lacks does not stop the others.
                self._left[path] = error.strerror or "could not be restored"

    def _in_the_way(self, path: str) -> str | None:
        """Something unsaved at this path, or where one of its folders should be."""
        found = self._files.status(path)
        if found is not None and stat.S_ISDIR(found.st_mode):
            return "a folder with files that were not saved is in its place"
        if found is not None and path not in self._saved:
            return "what is there now could not be saved first"
        parts = path.split("/")
        for count in range(1, len(parts)):
            folder = self._files.status("/".join(parts[:count]))
            if folder is not None and not stat.S_ISDIR(folder.st_mode):
                return "a file that was not saved is in place of its folder"
        return None


def _entries(git: ShadowGit, commit: str) -> dict[str, tuple[str, str]]:
    """Mode and blob of every path in a snapshot."""
    entries: dict[str, tuple[str, str]] = {}
    for line in git.listed("ls-tree", "-rz", commit, count_max=PATHS_MAX):
        facts, _, path = line.partition("\t")
        mode, _, blob = facts.split(" ")
        entries[path] = (mode, blob)
    return entries


def skipped_in(git: ShadowGit, commit: str) -> set[str]:
    """The paths that a snapshot says it does not hold."""
    message = git.run("cat-file", "commit", commit).partition(b"\n\n")[2]
    return set(json.loads(message)["skipped"])


def _shown(lines: list[str]) -> list[str]:
    """Readable lines, up to the limit; a path may hold bytes that are no text."""
    shown = [
        line.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
        for line in lines[:LISTED_MAX]
    ]
    more = len(lines) - LISTED_MAX
    return [*shown, f"and {more} more"] if more > 0 else shown
