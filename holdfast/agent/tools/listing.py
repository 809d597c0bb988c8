"""Looking through folders below the working directory: `list_files` and `grep`, both bounded."""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import regex

from holdfast.agent.tools import confined
from holdfast.agent.tools.outcome import ToolProblem
from holdfast.agent.tools.specs import GrepArguments, ListFilesArguments

ENTRIES_MAX = 1000
VISITED_MAX = 200_000
MATCHES_MAX = 200
BUDGET_S = 10.0
SEARCH_BYTES_MAX = 4 * 1024 * 1024
LINE_CHARS_MAX = 10_000
SHOWN_CHARS_MAX = 300
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


def list_files(arguments: ListFilesArguments, working_directory: Path) -> dict[str, Any]:
    """The entries of one folder, or every path below it that matches the glob."""
    place = confined.locate(arguments.path, working_directory)
    walk = Walk()
    if arguments.glob is not None:
        wanted = compile_glob(arguments.glob)
        below = _below(place, arguments.glob, walk)
        found = [_shown(place, path) for path in below if _fits(wanted, path)]
    else:
        found = list(_entries(place, walk))
    found.sort()
    shown = _within(found[:ENTRIES_MAX])
    return {
        "path": place.relative,
        "files": shown,
        "count": len(found),
        **_cut_note(walk, cut=len(shown) < len(found)),
    }


def grep(arguments: GrepArguments, working_directory: Path) -> dict[str, Any]:
    """Matching lines as `path:line:text`, binary and very large files left out."""
    pattern = _compile(arguments.pattern)
    place = confined.locate(arguments.path, working_directory)
    glob = arguments.glob or ""
    wanted = compile_glob(glob) if glob else None
    walk = Walk()
    matches: list[str] = []
    searched = 0
    for path, content in _contents(place, glob, wanted, walk):
        searched += 1
        for number, line in enumerate(content.splitlines(), start=1):
            if _search(pattern, line[:LINE_CHARS_MAX], walk):
                matches.append(f"{path}:{number}:{line[:SHOWN_CHARS_MAX]}")
            if len(matches) > MATCHES_MAX or walk.stopped:
                break
        if len(matches) > MATCHES_MAX or walk.stopped:
            break
    shown = _within(matches[:MATCHES_MAX])
    cut = _cut_note(walk, cut=len(shown) < len(matches))
    return {"matches": shown, "count": len(shown), "files_searched": searched, **cut}


def compile_glob(glob: str) -> Any:
    """A pattern for relative paths; without a slash it is about the name, at any depth."""
    if glob.count("*") > 20:
        raise ToolProblem("The glob has more than 20 stars.")
    source = glob.removeprefix("./")
    prefix = "" if "/" in source else "(?:.*/)?"
    try:
        return regex.compile(prefix + _glob_source(source.lstrip("/")))
    except regex.error as error:
        raise ToolProblem(f"The glob is not valid: {error}") from error


def _glob_source(glob: str) -> str:
    pieces = regex.findall(r"\*\*/|\*\*|\*|\?|\[!?[^\]/]+\]|.", glob, regex.DOTALL)
    known = {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}
    return "".join(known.get(piece) or _literal(piece) for piece in pieces)


def _literal(piece: str) -> str:
    if len(piece) > 1 and piece.startswith("["):
        inner = piece[1:-1].replace("\\", r"\\").replace("[", r"\[")
        return f"[^{inner[1:]}]" if inner.startswith("!") else f"[{inner}]"
    return str(regex.escape(piece))


def _compile(pattern: str) -> Any:
    try:
        return regex.compile(pattern)
    except (regex.error, RecursionError, OverflowError) as error:
        raise ToolProblem(f"The pattern is not a valid regular expression: {error}") from error


def _search(pattern: Any, line: str, walk: Walk) -> bool:
    try:
        # The limit stops a catastrophic pattern; `concurrent` lets other threads run meanwhile.
        return bool(pattern.search(line, timeout=max(walk.left_s(), 0.001), concurrent=True))
    except TimeoutError:
        walk.stopped = "out of time; use a simpler pattern or a smaller folder"
        return False


def _fits(wanted: Any, path: str) -> bool:
    try:
        return bool(wanted.fullmatch(path.rstrip("/"), timeout=1.0))
    except TimeoutError:
        raise ToolProblem("The glob takes too long to match; use a simpler one.") from None


def _entries(place: confined.Place, walk: Walk) -> Iterator[str]:
    with confined.folder_at(place) as folder, os.scandir(folder) as entries:
        for entry in entries:
            if not walk.may_visit():
                return
            yield _shown(place, entry.name) + ("/" if _is_folder(entry) else "")


def _below(place: confined.Place, glob: str, walk: Walk) -> Iterator[str]:
    """Every file below the place, relative to it; links to folders are not entered."""
    for prefix, _, files, _ in _folders(place, glob):
        for name in files:
            if not walk.may_visit():
                return
            yield prefix + name


def _contents(
    place: confined.Place, glob: str, wanted: Any, walk: Walk
) -> Iterator[tuple[str, str]]:
    """The text files to search, as (path from the working directory, content)."""
    if _is_file(place):
        yield place.relative, _text(confined.read(place)) or ""
        return
    for prefix, _, files, folder in _folders(place, glob):
        for name in sorted(files):
            if not walk.may_visit():
                return
            if wanted is not None and not _fits(wanted, prefix + name):
                continue
            text = _open_text(name, folder)
            if text is not None:
                yield _shown(place, prefix + name), text


def _folders(place: confined.Place, glob: str) -> Iterator[tuple[str, list[str], list[str], int]]:
    with confined.folder_at(place) as top:
        for base, folders, files, folder in os.fwalk(".", dir_fd=top, follow_symlinks=False):
            folders[:] = sorted(
                name for name in folders if name not in SKIPPED_FOLDERS or name in glob
            )
            prefix = base.removeprefix(".").removeprefix("/")
            yield (f"{prefix}/" if prefix else ""), folders, files, folder


def _open_text(name: str, folder: int) -> str | None:
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        descriptor = os.open(name, flags, dir_fd=folder)
    except OSError:
        # Unreadable, a link, or gone since: a search goes on without it.
        return None
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode) or status.st_size > SEARCH_BYTES_MAX:
            return None
        with os.fdopen(descriptor, "rb", closefd=False) as file:
            return _text(file.read(SEARCH_BYTES_MAX))
    except OSError:
        return None
    finally:
        os.close(descriptor)


def _text(content: bytes) -> str | None:
    return None if b"\0" in content[:8192] else content.decode("utf-8", errors="replace")


def _is_file(place: confined.Place) -> bool:
    return Path(place.root, *place.parts).is_file()


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:
        return False


def _shown(place: confined.Place, name: str) -> str:
    path = f"{place.relative}/{name}" if place.parts else name
    return confined.printable(path)


def _within(lines: list[str]) -> list[str]:
    kept: list[str] = []
    room = ANSWER_CHARS_MAX
    for line in lines:
        room -= len(line) + 4
        if room < 0:
            break
        kept.append(line)
    return kept


def _cut_note(walk: Walk, *, cut: bool) -> dict[str, Any]:
    if walk.stopped:
        return {"truncated": True, "note": f"stopped early: {walk.stopped}"}
    if cut:
        return {"truncated": True, "note": "more than fits; narrow the path, pattern or glob"}
    return {"truncated": False}
