"""What an edit would change, as a unified diff for whoever is asked about it."""

from __future__ import annotations

import difflib
from typing import Any

from holdfast.agent.tools import confined
from holdfast.agent.tools.files import edited, encoded
from holdfast.agent.tools.outcome import ToolProblem
from holdfast.agent.tools.specs import EditFileArguments, WriteFileArguments
from holdfast.folders.confined import Confined

DIFF_BYTES_MAX = 32 * 1024
# Comparing larger texts takes seconds.
COMPARED_BYTES_MAX = 512 * 1024


def proposed(arguments: Any, place: Confined) -> str | None:
    """The diff of a call of `write_file` or `edit_file`; None for one that would fail anyway."""
    if isinstance(arguments, WriteFileArguments):
        try:
            name, before = confined.read(place, arguments.path)
        except ToolProblem:
            name, before = arguments.path, b""
        return unified(name, before, encoded(arguments.content))
    if isinstance(arguments, EditFileArguments):
        name, before = confined.read(place, arguments.path)
        return unified(name, before, edited(arguments, name, before)[0])
    return None


def unified(name: str, before: bytes, after: bytes) -> str:
    """A unified diff of at most 32 KiB; binary and huge files are named and not shown."""
    if b"\0" in before + after:
        return f"{name}: a binary file of {len(after)} bytes (before: {len(before)})\n"
    if len(before) + len(after) > COMPARED_BYTES_MAX:
        return f"{name}: {len(after)} bytes (before: {len(before)}), too many to compare\n"
    old, new = (
        text.decode("utf-8", "replace").splitlines(keepends=True) for text in (before, after)
    )
    parts = difflib.unified_diff(old, new, fromfile=f"a/{name}", tofile=f"b/{name}")
    whole = "".join(one if one.endswith("\n") else f"{one}\n" for one in parts)
    raw = whole.encode("utf-8", "surrogatepass")
    if len(raw) <= DIFF_BYTES_MAX:
        return whole
    cut = f"\n[cut: {len(raw)} bytes in all]\n"
    kept = raw[: DIFF_BYTES_MAX - len(cut)].decode("utf-8", "ignore")
    return kept + cut
