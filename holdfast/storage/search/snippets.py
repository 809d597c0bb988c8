"""The piece of a text around its match, with the match marked."""

from __future__ import annotations

from holdfast.storage.search.matching import Text
from holdfast.storage.search.query import Leaf

SNIPPET_CHARS = 200
_LEAD_CHARS = 60
OPEN, CLOSE = ">>>", "<<<"


def snippet(raw: str, leaves: list[Leaf], *, substrings: bool) -> str:
    """About `SNIPPET_CHARS` characters with their matches marked; the text's start if none."""
    text = Text(raw)
    places = [text.find(leaf, substrings=substrings) for leaf in leaves]
    spans = sorted(place for place in places if place is not None)
    if not spans:
        return _flat(text.composed[:SNIPPET_CHARS]) + _dots(len(text.composed) > SNIPPET_CHARS)
    start = max(0, spans[0][0] - _LEAD_CHARS)
    end = min(len(text.composed), max(start + SNIPPET_CHARS, spans[0][1]))
    marked: list[str] = []
    position = start
    for span_start, span_end in spans:
        if span_start < position or span_end > end:
            continue
        marked += [_flat(text.composed[position:span_start])]
        marked += [OPEN, _flat(text.composed[span_start:span_end]), CLOSE]
        position = span_end
    marked.append(_flat(text.composed[position:end]))
    return _dots(start > 0) + "".join(marked) + _dots(end < len(text.composed))


def _flat(text: str) -> str:
    return "".join(" " if character in "\r\n\t" else character for character in text)


def _dots(cut: bool) -> str:
    return "…" if cut else ""
