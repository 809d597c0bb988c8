"""Text that every database, file and provider can take: no halves of surrogate pairs."""

from __future__ import annotations

import json
import re
from typing import Any

_SURROGATE = re.compile("[\ud800-\udfff]")
_HIGH_AT_END = re.compile("[\ud800-\udbff]$")


def clean(text: str) -> str:
    """The same text with pairs joined and lone halves replaced by U+FFFD."""
    if text.isascii() or _SURROGATE.search(text) is None:
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def clean_json(value: dict[str, Any]) -> dict[str, Any]:
    """The same object with every string in it clean."""
    rendered = json.dumps(value, ensure_ascii=False)
    if rendered.isascii() or _SURROGATE.search(rendered) is None:
        return value
    cleaned: dict[str, Any] = json.loads(clean(rendered))
    return cleaned


class Joiner:
    """Cleans a stream of pieces: some servers cut an emoji into its two halves."""

    def __init__(self) -> None:
        self._held = ""

    def add(self, piece: str) -> str:
        """What can be passed on now; a first half at the end waits for the second."""
        text = self._held + piece
        self._held = text[-1] if _HIGH_AT_END.search(text) else ""
        return clean(text[:-1] if self._held else text)
