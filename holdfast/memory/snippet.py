"""The part of a chunk that answers a query."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from functools import lru_cache

CHARACTERS_MAX = 700
LEAD = 120


def snippet_of(text: str, terms: list[str]) -> str:
    """At most 700 characters, where most of the terms are close together."""
    if len(text) <= CHARACTERS_MAX:
        return text
    start = max(0, _densest(text, terms) - LEAD)
    if start:
        # Begin with a line if one begins nearby, else with a word.
        line, space = text.find("\n", start, start + LEAD), text.find(" ", start, start + LEAD)
        start = line + 1 if line >= 0 else (space + 1 if space >= 0 else start)
    if start + CHARACTERS_MAX > len(text):
        start = len(text) - CHARACTERS_MAX + 1
    before, after = "…" if start else "", "…" if start + CHARACTERS_MAX < len(text) else ""
    room = CHARACTERS_MAX - len(before) - len(after)
    return before + text[start : start + room] + after


def _densest(text: str, terms: list[str]) -> int:
    """Where the window with most different terms begins; 0 when there is none of them."""
    places = _places(text, terms)
    seen: Counter[str] = Counter()
    best, best_count, first = 0, 0, 0
    for at, term in places:
        seen[term] += 1
        while at - places[first][0] > CHARACTERS_MAX - 2 * LEAD:
            seen[places[first][1]] -= 1
            first += 1
        count = sum(1 for times in seen.values() if times > 0)
        if count > best_count:
            best, best_count = places[first][0], count
    return best


def _places(text: str, terms: list[str]) -> list[tuple[int, str]]:
    if not terms:
        return []
    wanted = "|".join(re.escape(_plain(term)) for term in terms)
    return [(one.start(), one.group()) for one in re.finditer(wanted, _plain(text))]


def _plain(text: str) -> str:
    """Without case and accents, and of the same length: places in it are places in the text."""
    if text.isascii():
        return text.lower()
    return "".join([_plain_character(character) for character in text])


@lru_cache(maxsize=16_384)
def _plain_character(character: str) -> str:
    base = character if character.isascii() else unicodedata.normalize("NFD", character)[0]
    lower = base.lower()
    return lower if len(lower) == 1 else base
