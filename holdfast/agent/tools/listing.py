"""Looking through folders below the working directory: entries, globs and patterns, all bounded.

What matches a glob or a pattern runs in a process of its own (`search_process.py`): a model's
pattern may take all the time and memory that it is given.
"""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from holdfast.agent.tools import confined
from holdfast.agent.tools.outcome import ToolProblem
from holdfast.folders.access import Access, Names
from holdfast.folders.confined import FILE_BYTES_MAX, Confined, scanned
from holdfast.folders.walking import Found, judged

ENTRIES_MAX = 1000
VISITED_MAX = 200_000
DEPTH_MAX = 100
BUDGET_S = 8.0
# The whole answer stays below the 32 KiB at which tool outputs are cut for the model.
ANSWER_CHARS_MAX = 24_000
# Generated folders are full of matches that nobody asked about; a pattern may still name them.
SKIPPED_FOLDERS = frozenset({".git", "node_modules", "__pycache__", ".venv"})


@dataclass
class Walk:
    """A walk in progress: how long and how far it may still go."""

    deadline: float = field(default_factory=lambda: time.monotonic() + BUDGET_S)
    visited: int = 0
    stopped: str | None = None

    def left_s(self) -> float:
        """Seconds that remain."""
        return self.deadline - time.monotonic()

    def may_visit(self) -> bool:
        """Count one more entry; false once the walk has to stop."""
        self.visited += 1
        if self.visited > VISITED_MAX:
            self.stopped = "too many files"
        elif self.left_s() <= 0:
            self.stopped = "out of time"
        return self.stopped is None


@dataclass(frozen=True)
class Folder:
    """A folder on a walk, its files sorted; `prefix` is its path from where the walk began."""

    descriptor: int
    names: Names
    access: Access
    prefix: str
    files: list[str]


def list_folder(place: Confined, path: str) -> dict[str, Any]:
    """The entries of one folder; a folder ends with a slash."""
    walk = Walk()
    with confined.explained(place.path, path), place.find(confined.checked(path)) as found:
        _must_be_folder(found)
        names = tuple(found.names)
        entries = [
            shown((*names, name)) + ("/" if is_folder else "")
            for name, is_folder in _entries(place, found.folder, names, found.access[-1], walk)
        ]
        return listed(shown(names), entries, walk)


def listed(path: str, found: list[str], walk: Walk) -> dict[str, Any]:
    """The answer of `list_files`, sorted and cut."""
    found.sort()
    kept = within(found[:ENTRIES_MAX])
    note = cut_note(walk, cut=len(kept) < len(found))
    return {"path": path, "files": kept, "count": len(found), **note}


def folders(place: Confined, found: Found, glob: str, walk: Walk) -> Iterator[Folder]:
    """The folder that was found and those below it; links to folders are not entered."""
    _must_be_folder(found)
    top = (found.folder, tuple(found.names), found.access[-1])
    yield from _below(place, top, "", glob, walk)


def file_text(place: Confined, folder: Folder, name: str, limit: int) -> str | None:
    """The text of a file; None for what is binary, large, a link, hidden or gone since."""
    try:
        names = (*folder.names, name)
        return text_of(place.read_in(folder.descriptor, names, folder.access, limit=limit))
    except OSError:
        return None


def found_text(place: Confined, found: Found) -> str:
    """The text of the one file that was asked for; nothing when it is binary."""
    return text_of(place.read(found, limit=FILE_BYTES_MAX)) or ""


def text_of(content: bytes) -> str | None:
    """The bytes as text, unless they are none."""
    return None if b"\0" in content[:8192] else content.decode("utf-8", errors="replace")


def shown(names: Names) -> str:
    """A path as the model should name it."""
    return confined.printable("/".join(names) or ".")


def within(lines: list[str]) -> list[str]:
    """The first lines that fit into an answer."""
    kept: list[str] = []
    room = ANSWER_CHARS_MAX
    for line in lines:
        room -= len(line) + 4
        if room < 0:
            break
        kept.append(line)
    return kept


def cut_note(walk: Walk, *, cut: bool) -> dict[str, Any]:
    """Whether something was left out, and why."""
    if walk.stopped:
        return {"truncated": True, "note": f"stopped early: {walk.stopped}"}
    if cut:
        return {"truncated": True, "note": "more than fits; narrow the path, pattern or glob"}
    return {"truncated": False}


def _must_be_folder(found: Found) -> None:
    if found.missing:
        raise ToolProblem(f"{shown(found.path)}: No such file or directory")
    if found.file is not None:
        raise ToolProblem(f"{shown(found.path)}: Not a directory")


def _below(
    place: Confined, top: tuple[int, Names, Access], prefix: str, glob: str, walk: Walk
) -> Iterator[Folder]:
    descriptor, names, access = top
    files: list[str] = []
    inner: list[str] = []
    for name, is_folder in _entries(place, descriptor, names, access, walk):
        (inner if is_folder else files).append(name)
    yield Folder(descriptor, names, access, prefix, sorted(files))
    if prefix.count("/") >= DEPTH_MAX:
        walk.stopped = walk.stopped or f"folders deeper than {DEPTH_MAX}"
        return
    for name in sorted(inner):
        if walk.stopped:
            return
        if name in SKIPPED_FOLDERS and name not in glob:
            continue
        try:
            following, inside = judged(place.judge, descriptor, (*names, name), access)
        except OSError:
            continue  # gone since, or hidden
        try:
            if stat.S_ISDIR(os.fstat(following).st_mode):
                deeper = (following, (*names, name), inside)
                yield from _below(place, deeper, f"{prefix}{name}/", glob, walk)
        finally:
            os.close(following)


def _entries(
    place: Confined, folder: int, names: Names, access: Access, walk: Walk
) -> Iterator[tuple[str, bool]]:
    """Name and whether it is a folder, a link by what it leads to; hidden ones are left out."""
    try:
        with scanned(folder) as entries:
            for entry in entries:
                if not walk.may_visit():
                    return
                if not _is_hidden(place, entry, folder, names, access):
                    yield entry.name, _is_folder(place, entry, names)
    except PermissionError:
        if not names:
            raise


def _is_hidden(
    place: Confined, entry: os.DirEntry[str], folder: int, names: Names, access: Access
) -> bool:
    path = (*names, entry.name)
    if place.judge.of_name(path, access) is Access.HIDDEN:
        return True
    if not place.judge.may_know(entry.inode()):
        return False
    try:
        os.close(judged(place.judge, folder, path, access)[0])
    except OSError:
        return True
    return False


def _is_folder(place: Confined, entry: os.DirEntry[str], names: Names) -> bool:
    try:
        if not entry.is_symlink():
            return entry.is_dir(follow_symlinks=False)
        with place.find("/".join((*names, entry.name))) as found:
            return found.is_folder
    except OSError:
        return False
