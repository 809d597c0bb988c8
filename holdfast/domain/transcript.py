"""What is kept of a terminal that is over: how it ended and what it showed."""

from __future__ import annotations

from dataclasses import dataclass

# Of the plain text, which is for reading and searching; the timed lines hold everything.
TEXT_CHARS_MAX = 200_000


@dataclass(frozen=True, kw_only=True)
class Transcript:
    """`timed`: the lines of JSON of `holdfast/terminal/showing.py`; None: nothing is left."""

    reason: str
    exit_code: int | None = None
    timed: bytes | None = None
    text: str = ""
    line_count: int = 0


LOST = Transcript(reason="lost")
