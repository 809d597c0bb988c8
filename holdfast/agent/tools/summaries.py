"""One short line per tool call for people: `shell: make test`. Temporal keeps it: no prompts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from holdfast.agent.tools.specs import BY_NAME

SUMMARY_CHARS_MAX = 80
DETAIL_CHARS_MAX = 400


def summary(name: str, arguments: Mapping[str, Any]) -> str:
    """The call in at most 80 characters, on one line, whatever the arguments are."""
    spec = BY_NAME.get(name)
    value = None if spec is None else spec.summarised_by(arguments)
    detail = "" if value is None else str(value)[:DETAIL_CHARS_MAX]
    line = " ".join(f"{name}: {detail}".split()) if detail else name
    return line if len(line) <= SUMMARY_CHARS_MAX else line[: SUMMARY_CHARS_MAX - 1] + "…"
