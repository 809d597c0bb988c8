"""What one edit changed, for people: a unified diff that is never longer than 32 KiB."""

from __future__ import annotations

import difflib

DIFF_BYTES_MAX = 32 * 1024
# Comparing takes longer than it is worth in larger files.
COMPARED_BYTES_MAX = 512 * 1024
COMPARED_LINES_MAX = 10_000
CUT = "[cut: the diff is longer than 32 KiB]\n"
NO_NEWLINE = "\n\\ No newline at end of file\n"


def unified(name: str, before: bytes | None, after: bytes) -> str:
    """The diff of a file; empty when it is binary, too large, or the same."""
    old, new = before or b"", after
    if b"\0" in old or b"\0" in new or len(old) + len(new) > COMPARED_BYTES_MAX:
        return ""
    removed, added = _lines(old), _lines(new)
    if len(removed) + len(added) > COMPARED_LINES_MAX:
        return ""
    was = "/dev/null" if before is None else f"a/{name}"
    diff = difflib.unified_diff(removed, added, was, f"b/{name}")
    return _cut([line if line.endswith("\n") else line + NO_NEWLINE for line in diff])


def _lines(text: bytes) -> list[str]:
    return text.decode("utf-8", errors="replace").splitlines(keepends=True)


def _cut(lines: list[str]) -> str:
    kept: list[str] = []
    room = DIFF_BYTES_MAX - len(CUT)
    for line in lines:
        room -= len(line.encode("utf-8", "replace"))
        if room < 0:
            return "".join([*kept, CUT])
        kept.append(line)
    return "".join(kept)
