"""What a tool call came to."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

OUTPUT_BYTES_MAX = 32 * 1024
_NOTE_BYTES = 128


@dataclass(frozen=True)
class ToolOutcome:
    """The answer of a tool, as an object or as text; an error is for the model to read."""

    output: dict[str, Any] | str
    is_error: bool = False

    @property
    def text(self) -> str:
        """The answer as the model reads it."""
        if isinstance(self.output, str):
            return self.output
        return json.dumps(self.output, ensure_ascii=False)


class ToolProblem(Exception):
    """Trouble that the model can act on; it becomes an outcome with `is_error`."""


def cut_for_model(text: str, bytes_max: int = OUTPUT_BYTES_MAX) -> tuple[str, bool]:
    """The output as the model reads it, and whether it was cut: mostly its end, and says so."""
    whole = text.encode("utf-8", "replace")
    if len(whole) <= bytes_max:
        return text, False
    head = (bytes_max - _NOTE_BYTES) // 4
    tail = bytes_max - _NOTE_BYTES - head
    start = whole[:head].decode("utf-8", "ignore")
    end = whole[-tail:].decode("utf-8", "ignore")
    left_out = len(whole) - head - tail
    return f"{start}\n[… {left_out} bytes cut; the whole output is kept …]\n{end}", True
