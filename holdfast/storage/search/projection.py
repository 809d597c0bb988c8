"""Which text of a row is searched: bounded, so that no single row blows up the index."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

TOOL_CHARS_MAX = 8_192
TEXT_CHARS_MAX = 500_000
_DEPTH_MAX = 8
_UNTOLD_KEYS = frozenset({"id", "type", "call_id", "tool_call_id"})


def message_text(
    role: str, content: str, tool_name: str | None, tool_calls: list[dict[str, Any]] | None
) -> str:
    """What a message is found by: its content, its tool, and the calls it makes (H-010)."""
    parts = [content or ""]
    if tool_name:
        parts.append(tool_name)
    if tool_calls:
        parts.extend(_strings(tool_calls, 0))
    limit = TOOL_CHARS_MAX if role == "tool" else TEXT_CHARS_MAX
    text = parts[0][:limit]
    return text if len(parts) == 1 else "\n".join((text, *parts[1:]))[: limit + TOOL_CHARS_MAX]


def transcript_text(text: str) -> str:
    """What a terminal is found by: the end of what it showed."""
    return text[-TEXT_CHARS_MAX:]


def _strings(value: Any, depth: int) -> Iterator[str]:
    if depth > _DEPTH_MAX:
        return
    if isinstance(value, dict):
        for key, item in value.items():
            if key not in _UNTOLD_KEYS:
                yield from _strings(item, depth + 1)
    elif isinstance(value, list):
        for item in value:
            yield from _strings(item, depth + 1)
    elif isinstance(value, str | int | float) and not isinstance(value, bool):
        yield str(value)
