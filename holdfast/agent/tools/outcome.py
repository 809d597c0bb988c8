"""What a tool call came to."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class ToolOutcome:
    """The answer of a tool, as an object or as text; an error is for the model to read.

    `diff` says what it changed, for people: the model wrote it.
    """

    output: dict[str, Any] | str
    is_error: bool = False
    diff: str = ""

    @property
    def text(self) -> str:
        """The answer as the model reads it."""
        if isinstance(self.output, str):
            return self.output
        return json.dumps(self.output, ensure_ascii=False)


class ToolProblem(Exception):
    """Trouble that the model can act on; it becomes an outcome with `is_error`."""
