"""A text cut into chunks of whole lines that overlap a little, each knowing its lines (O-026)."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import NamedTuple

from holdfast.domain.memory import ChunkSettings

# A rough mean of English and code; only the size of a chunk hangs on it.
CHARACTERS_PER_TOKEN = 4


class Chunk(NamedTuple):
    """Some lines of a text; lines count from one, and both ends are included."""

    start_line: int
    end_line: int
    text: str
    hash: str


class _Piece(NamedTuple):
    """A line, or a part of one that is too long."""

    line: int
    text: str


def chunks_of(text: str, settings: ChunkSettings) -> list[Chunk]:
    """The chunks of a text, in order. What is blank from end to end makes none."""
    size = settings.tokens * CHARACTERS_PER_TOKEN
    overlap = settings.overlap * CHARACTERS_PER_TOKEN
    found: list[Chunk] = []
    pieces: list[_Piece] = []
    length = 0
    fresh = False  # whether there is anything in `pieces` that no chunk has yet
    for piece in _pieces(text, size):
        if fresh and length + len(piece.text) > size:
            found += _chunk(pieces)
            # The overlap gives way to the next line: no chunk is ever over its size.
            pieces = _tail(pieces, min(overlap, size - len(piece.text) - 1))
            length = sum(len(one.text) + 1 for one in pieces)
        pieces.append(piece)
        length += len(piece.text) + 1
        fresh = True
    return found + (_chunk(pieces) if fresh else [])


def _pieces(text: str, size: int) -> Iterator[_Piece]:
    for number, line in enumerate(text.split("\n"), start=1):
        if not line:
            yield _Piece(number, "")
        for start in range(0, len(line), size):
            yield _Piece(number, line[start : start + size])


def _tail(pieces: list[_Piece], room: int) -> list[_Piece]:
    """The last whole pieces that fit into the room, or the end of one that is longer than it."""
    last = pieces[-1]
    if 0 < room < len(last.text):
        return [_Piece(last.line, last.text[-room:])]
    first = len(pieces)
    while first > 0 and len(pieces[first - 1].text) <= room:
        first -= 1
        room -= len(pieces[first].text) + 1
    return pieces[first:]


def _chunk(pieces: list[_Piece]) -> list[Chunk]:
    lines: list[str] = []
    last = 0
    for line, text in pieces:
        # Parts of one long line are one line again.
        if line == last:
            lines[-1] += text
        else:
            lines.append(text)
        last = line
    text = "\n".join(lines)
    if not text.strip():
        return []
    return [Chunk(pieces[0].line, pieces[-1].line, text, text_hash(text))]


def text_hash(text: str) -> str:
    """What tells two chunks apart."""
    return hashlib.sha256(text.encode("utf-8")).hexdigest()
