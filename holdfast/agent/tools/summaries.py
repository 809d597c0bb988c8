"""One short line per tool call for people: `shell: make test`. Temporal keeps it: no prompts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

SUMMARY_CHARS_MAX = 80
# The argument that says most about a call of this tool.
_TELLING = {
    "shell": "command",
    "read_file": "path",
    "write_file": "path",
    "edit_file": "path",
    "list_files": "glob",
    "grep": "pattern",
    "checkpoint": "reason",
    "issue": "op",
    "subagent": "name",
    "session_search": "query",
    "memory_search": "query",
}


def summary(name: str, arguments: Mapping[str, Any]) -> str:
    """The call in at most 80 characters, on one line, whatever the arguments are."""
    detail = _detail(name, arguments)
    line = " ".join(f"{name}: {detail}".split()) if detail else name
    return line if len(line) <= SUMMARY_CHARS_MAX else line[: SUMMARY_CHARS_MAX - 1] + "…"


def _detail(name: str, arguments: Mapping[str, Any]) -> str:
    if name == "todo":
        ops = arguments.get("ops")
        known = [op for op in ops if isinstance(op, dict)] if isinstance(ops, list) else []
        return ", ".join(str(op.get("op", "?")) for op in known[:5])
    value = arguments.get(_TELLING.get(name, ""))
    if value is None and name == "list_files":
        value = arguments.get("path", ".")
    return "" if value is None else str(value)[:400]
