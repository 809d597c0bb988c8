"""The file tools: read, write, edit, list and search below the working directory. They block."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from holdfast.agent.tools import confined, diffs
from holdfast.agent.tools.arguments import Arguments
from holdfast.agent.tools.listing import list_folder
from holdfast.agent.tools.outcome import ToolOutcome, ToolProblem
from holdfast.agent.tools.search_client import SEARCHES
from holdfast.agent.tools.specs import (
    EDIT_FILE,
    GREP,
    LIST_FILES,
    READ_FILE,
    WRITE_FILE,
    EditFileArguments,
    GrepArguments,
    ListFilesArguments,
    ReadFileArguments,
    WriteFileArguments,
)
from holdfast.agent.tools.tool_spec import ToolSpec
from holdfast.folders.access import Rules
from holdfast.folders.confined import FILE_BYTES_MAX, Confined

# The whole answer stays below the 32 KiB at which tool outputs are cut for the model: a page that
# is cut there would name the wrong next line.
READ_BYTES_MAX = 30 * 1024
BINARY_PROBE_BYTES = 8192

# It takes the arguments of its spec.
FileTool = Callable[[Any, Confined], dict[str, Any] | ToolOutcome]


def run_file_tool(
    tool: FileTool,
    arguments: Arguments,
    working_directory: Path,
    rules: Rules = confined.NO_RULES,
) -> ToolOutcome:
    """What the tool answers; trouble that the model can act on is an outcome, not an exception.

    The folder is opened once, here. It blocks for up to some seconds: call it in a thread.
    """
    try:
        with confined.opened(working_directory, rules) as place:
            answer = tool(arguments, place)
            return answer if isinstance(answer, ToolOutcome) else ToolOutcome(answer)
    except ToolProblem as trouble:
        return ToolOutcome(str(trouble), is_error=True)


def read_file(arguments: ReadFileArguments, place: Confined) -> dict[str, Any]:
    """A page of lines, counted from 1, and where the next page starts."""
    name, content = confined.read(place, arguments.path)
    if b"\0" in content[:BINARY_PROBE_BYTES]:
        raise ToolProblem(f"{name} is a binary file of {len(content)} bytes.")
    lines = content.decode("utf-8", errors="replace").splitlines(keepends=True)
    offset = arguments.offset
    if offset > max(len(lines), 1):
        raise ToolProblem(f"{name} has {len(lines)} lines; there is no line {offset}.")
    last = offset - 1 + arguments.limit
    page = _page(lines[offset - 1 : last])
    following = offset + len(page)
    answer: dict[str, Any] = {
        "path": name,
        "content": "".join(page),
        "offset": offset,
        "lines": len(page),
        "total_lines": len(lines),
        "truncated": following <= len(lines),
    }
    if following <= len(lines):
        answer["next_offset"] = following
    return answer


def _page(lines: list[str]) -> list[str]:
    page: list[str] = []
    room = READ_BYTES_MAX
    for line in lines:
        size = len(json.dumps(line, ensure_ascii=False).encode("utf-8", "replace"))
        if size > room:
            if not page:
                page.append(
                    f"{line[: READ_BYTES_MAX // 8]} [… line of {len(line)} characters cut]\n"
                )
            break
        page.append(line)
        room -= size
    return page


def write_file(arguments: WriteFileArguments, place: Confined) -> ToolOutcome:
    """Replace or create a file, all of it or nothing."""
    content, before = encoded(arguments.content), None
    with contextlib.suppress(ToolProblem):
        before = confined.read(place, arguments.path)[1]
    name, created = confined.write(place, arguments.path, content)
    answer = {"path": name, "bytes": len(content), "created": created}
    return ToolOutcome(answer, diff=diffs.unified(name, None if created else before, content))


def edit_file(arguments: EditFileArguments, place: Confined) -> ToolOutcome:
    """Replace one exact text, or every match of it."""
    name, content = confined.read(place, arguments.path)
    changed, matches = edited(arguments, name, content)
    confined.write(place, arguments.path, changed)
    diff = diffs.unified(name, content, changed)
    return ToolOutcome({"path": name, "replacements": matches}, diff=diff)


def edited(arguments: EditFileArguments, name: str, content: bytes) -> tuple[bytes, int]:
    """The content with its text replaced, and how often."""
    old, new = encoded(arguments.old_string), encoded(arguments.new_string)
    if old == new:
        raise ToolProblem("old_string and new_string are the same.")
    if old not in content and b"\r\n" in content:
        # The model saw plain line ends.
        old, new = _windows(old), _windows(new)
    matches = content.count(old)
    if matches == 0:
        raise ToolProblem(
            f"old_string is not in {name}. Read the file again: it must match exactly, "
            "with its spaces and line ends."
        )
    if matches > 1 and not arguments.replace_all:
        raise ToolProblem(
            f"old_string is {matches} times in {name} (lines "
            f"{_line_numbers(content, old)}). Add context to make it unique, or set replace_all."
        )
    changed = content.replace(old, new)
    if len(changed) > FILE_BYTES_MAX:
        raise ToolProblem(f"{name} would grow beyond 16 MiB.")
    return changed, matches


def list_files(arguments: ListFilesArguments, place: Confined) -> dict[str, Any]:
    """The entries of one folder, or every path below it that matches the glob."""
    if arguments.glob is None:
        return list_folder(place, arguments.path)
    asked = {"path": arguments.path, "glob": arguments.glob, "pattern": None}
    return SEARCHES.search(place, asked)


def grep(arguments: GrepArguments, place: Confined) -> dict[str, Any]:
    """Matching lines as `path:line:text`, binary and very large files left out."""
    return SEARCHES.search(place, arguments.model_dump())


def encoded(text: str) -> bytes:
    """The bytes of a text for a file; ToolProblem for what no file can hold."""
    try:
        return text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise ToolProblem("The text holds half of a surrogate pair, which no file can.") from error


def _windows(text: bytes) -> bytes:
    return text.replace(b"\r\n", b"\n").replace(b"\n", b"\r\n")


def _line_numbers(content: bytes, wanted: bytes, shown_max: int = 5) -> str:
    numbers: list[str] = []
    position = content.find(wanted)
    while position >= 0 and len(numbers) < shown_max:
        numbers.append(str(content.count(b"\n", 0, position) + 1))
        position = content.find(wanted, position + len(wanted))
    return ", ".join(numbers) + (", …" if position >= 0 else "")


FILE_TOOLS: tuple[tuple[ToolSpec, FileTool], ...] = (
    (READ_FILE, read_file),
    (WRITE_FILE, write_file),
    (EDIT_FILE, edit_file),
    (LIST_FILES, list_files),
    (GREP, grep),
)
