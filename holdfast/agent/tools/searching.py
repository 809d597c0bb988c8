"""Globs and regular expressions over files. It runs in a process that may die of the pattern."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import regex

from holdfast.agent.tools import confined
from holdfast.agent.tools.listing import (
    Walk,
    cut_note,
    file_text,
    folders,
    found_text,
    listed,
    shown,
    within,
)
from holdfast.agent.tools.outcome import ToolProblem
from holdfast.folders.confined import Confined

MATCHES_MAX = 200
SEARCH_BYTES_MAX = 4 * 1024 * 1024
LINE_CHARS_MAX = 10_000
SHOWN_CHARS_MAX = 300
STARS_MAX = 20
SIMPLER = "use a simpler pattern or a smaller folder"


def search(place: Confined, asked: dict[str, Any]) -> dict[str, Any]:
    """A `list_files` with a glob or a `grep`, as its process was asked for it."""
    walk = Walk(time.monotonic() + asked["budget_s"])
    path, glob = asked["path"], asked["glob"]
    if asked["pattern"] is None:
        return list_matches(place, path, glob, walk)
    return grep(place, asked["pattern"], path, glob, walk)


def list_matches(place: Confined, path: str, glob: str, walk: Walk) -> dict[str, Any]:
    """Every path below the folder that matches the glob."""
    wanted = compile_glob(glob)
    matches: list[str] = []
    with confined.explained(place.path, path), place.find(confined.checked(path)) as found:
        for folder in folders(place, found, glob, walk):
            for name in folder.files:
                if _fits(wanted, folder.prefix + name):
                    matches.append(shown((*folder.names, name)))
        return listed(shown(tuple(found.names)), matches, walk)


def grep(place: Confined, pattern: str, path: str, glob: str | None, walk: Walk) -> dict[str, Any]:
    """Matching lines as `path:line:text`, binary and very large files left out."""
    compiled = _compile(pattern)
    matches: list[str] = []
    searched = 0
    for name, content in _contents(place, path, glob, walk):
        searched += 1
        for number, line in enumerate(content.splitlines(), start=1):
            if _search(compiled, line[:LINE_CHARS_MAX], walk):
                matches.append(f"{name}:{number}:{line[:SHOWN_CHARS_MAX]}")
            if len(matches) > MATCHES_MAX or walk.stopped:
                break
        if len(matches) > MATCHES_MAX or walk.stopped:
            break
    kept = within(matches[:MATCHES_MAX])
    cut = cut_note(walk, cut=len(kept) < len(matches))
    return {"matches": kept, "count": len(kept), "files_searched": searched, **cut}


def compile_glob(glob: str) -> Any:
    """A pattern for relative paths; without a slash it is about the name, at any depth."""
    if glob.count("*") > STARS_MAX:
        raise ToolProblem(f"The glob has more than {STARS_MAX} stars.")
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
        return bool(pattern.search(line, timeout=max(walk.left_s(), 0.001)))
    except TimeoutError:
        walk.stopped = f"out of time; {SIMPLER}"
        return False


def _fits(wanted: Any, path: str) -> bool:
    try:
        return bool(wanted.fullmatch(path, timeout=1.0))
    except TimeoutError:
        raise ToolProblem("The glob takes too long to match; use a simpler one.") from None


def _contents(
    place: Confined, path: str, glob: str | None, walk: Walk
) -> Iterator[tuple[str, str]]:
    """The text files to search, as (path from the working directory, content)."""
    wanted = compile_glob(glob) if glob else None
    with confined.explained(place.path, path), place.find(confined.checked(path)) as found:
        if found.file is not None:
            yield shown(found.path), found_text(place, found)
            return
        for folder in folders(place, found, glob or "", walk):
            for name in folder.files:
                if walk.left_s() <= 0:
                    walk.stopped = "out of time"
                if walk.stopped:
                    return
                if wanted is not None and not _fits(wanted, folder.prefix + name):
                    continue
                text = file_text(place, folder, name, SEARCH_BYTES_MAX)
                if text is not None:
                    yield shown((*folder.names, name)), text
