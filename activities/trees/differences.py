"""What is different between two snapshots: a list of files, or a unified diff, both with limits."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass

from activities.trees.shadow_git import ShadowGit

FILES_MAX = 5_000
# Two snapshots with nothing in common have fewer words in their list.
WORDS_MAX = 200_000
DIFF_BYTES_MAX = 2 * 1024 * 1024
# Larger files are named, not shown.
SHOWN_BYTES_MAX = 1024 * 1024
STATUS = {"A": "added", "M": "modified", "D": "deleted", "R": "renamed", "T": "modified"}
CUT = f"[cut: the diff is longer than {DIFF_BYTES_MAX} bytes]\n"
_WAYS = ("--find-renames", "--no-ext-diff", "--no-textconv", "--no-color")
_BIG = ("-c", f"core.bigFileThreshold={SHOWN_BYTES_MAX}", "-c", "diff.renameLimit=1000")


@dataclass(frozen=True)
class FileChange:
    """One file that is not what it was; `old_path` is the name that a renamed one had."""

    path: str
    status: str
    additions: int
    deletions: int
    binary: bool
    old_path: str | None = None


@dataclass(frozen=True)
class Differences:
    """The files that differ, up to a limit."""

    files: tuple[FileChange, ...]
    truncated: bool = False


def differences(git: ShadowGit, before: str, after: str) -> Differences:
    """The files that differ between two snapshots, by path."""
    asked = (*_BIG, "diff-tree", "-r", "-z", *_WAYS)
    most = {"count_max": WORDS_MAX}
    states = list(_states(git.listed(*asked, "--name-status", before, after, **most)))
    counts = dict(_counts(git.listed(*asked, "--numstat", before, after, **most)))
    files = []
    for status, path, old_path in states[:FILES_MAX]:
        additions, deletions, binary = counts.get(path, (0, 0, True))
        files.append(FileChange(path, status, additions, deletions, binary, old_path))
    return Differences(tuple(files), truncated=len(states) > FILES_MAX)


def unified_diff(git: ShadowGit, before: str, after: str, path: str | None) -> str:
    """The differences as a unified diff, of one path or of all; cut where it grows too long."""
    paths = ("--", path) if path is not None else ()
    arguments = ("--literal-pathspecs", *_BIG, "diff-tree", "-p", "-r", *_WAYS, before, after)
    raw, whole = git.beginning(*arguments, *paths, bytes_max=DIFF_BYTES_MAX)
    text = raw.decode("utf-8", "replace")
    if whole:
        return text
    return text[: text.rfind("\n") + 1] + CUT


def _states(words: list[str]) -> Iterator[tuple[str, str, str | None]]:
    """Status, path and earlier path of each file, of `--name-status -z`."""
    rest = iter(words)
    for word in rest:
        if word[0] in "RC":
            old_path = next(rest)
            yield STATUS.get(word[0], "added"), _shown(next(rest)), _shown(old_path)
        else:
            yield STATUS.get(word[0], "modified"), _shown(next(rest)), None


def _counts(words: list[str]) -> Iterator[tuple[str, tuple[int, int, bool]]]:
    """Lines that came and went of each file, of `--numstat -z`; of a binary one no lines."""
    rest = iter(words)
    for word in rest:
        additions, deletions, path = word.split("\t", 2)
        if not path:  # renamed: the old name and the new one follow
            next(rest)
            path = next(rest)
        binary = additions == "-"
        counted = (0, 0) if binary else (int(additions), int(deletions))
        yield _shown(path), (*counted, binary)


def _shown(path: str) -> str:
    """A path as text: names may hold bytes that are no UTF-8."""
    return os.fsencode(path).decode("utf-8", "replace")
