"""What an edit would change, as a diff for whoever is asked about it."""

from __future__ import annotations

from typing import Any

from holdfast.agent.tools import confined
from holdfast.agent.tools.diffs import unified
from holdfast.agent.tools.files import edited, encoded
from holdfast.agent.tools.outcome import ToolProblem
from holdfast.agent.tools.specs import EditFileArguments, WriteFileArguments
from holdfast.folders.confined import Confined


def proposed(arguments: Any, place: Confined) -> str | None:
    """The diff of a call of `write_file` or `edit_file`; None for one that would fail anyway."""
    if isinstance(arguments, WriteFileArguments):
        after = encoded(arguments.content)
        try:
            name, before = confined.read(place, arguments.path)
        except ToolProblem:
            return _told(arguments.path, None, after)
        return _told(name, before, after)
    if isinstance(arguments, EditFileArguments):
        name, before = confined.read(place, arguments.path)
        return _told(name, before, edited(arguments, name, before)[0])
    return None


def _told(name: str, before: bytes | None, after: bytes) -> str:
    """The diff, or words where there is none: a binary or huge file is named and not shown."""
    sizes = f"{len(after)} bytes (before: {len(before or b'')})"
    return unified(name, before, after) or f"{name}: no text to compare, {sizes}\n"
