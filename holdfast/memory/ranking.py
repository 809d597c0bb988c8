"""What else the order of hits hangs on: their age, and how much they repeat each other (O-036)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from holdfast.domain.memory import Source
from holdfast.memory.words import indexed

DAY_MS = 86_400_000
_DATED = re.compile(r"^memory/(?:.*/)?(\d{4}-\d{2}-\d{2})[^/]*\.md$", re.IGNORECASE)


@dataclass(frozen=True)
class Candidate:
    """A chunk that may become a hit."""

    path: str
    source: Source
    start_line: int
    end_line: int
    text: str
    mtime_ms: int
    all_terms: bool
    text_score: float | None
    vector_score: float | None
    score: float


def decayed(found: Sequence[Candidate], half_life_days: float, now_ms: int) -> list[Candidate]:
    """The scores, halved with every half-life of their documents' age."""
    aged = []
    for one in found:
        born_ms = born(one.path, one.source, one.mtime_ms)
        age_days = 0.0 if born_ms is None else max(0.0, (now_ms - born_ms) / DAY_MS)
        aged.append(replace(one, score=one.score * 0.5 ** (age_days / half_life_days)))
    return aged


def born(path: str, source: Source, mtime_ms: int) -> int | None:
    """When a document's age begins; None for the evergreen, which have none.

    A diary page is as old as the day in its name. Standing notes do not age. Anything else is as
    old as its last change.
    """
    if dated := _DATED.match(path):
        try:
            day = datetime.strptime(dated.group(1), "%Y-%m-%d").replace(tzinfo=UTC)
        except ValueError:
            return None  # 2026-13-45 is a name, not a day
        return int(day.timestamp() * 1000)
    if source == "memory" and (path.casefold() == "memory.md" or path.startswith("memory/")):
        return None
    return mtime_ms


def varied(found: Sequence[Candidate], weight: float, limit: int) -> list[Candidate]:
    """Up to `limit` of them: each the best by its score less its likeness to those before it."""
    words = [set(indexed(one.text).casefold().split()) for one in found]
    likeness = [0.0] * len(found)
    left = list(range(len(found)))
    taken: list[Candidate] = []
    while left and len(taken) < limit:
        best = max(left, key=lambda at: weight * found[at].score - (1 - weight) * likeness[at])
        left.remove(best)
        taken.append(found[best])
        for at in left:
            likeness[at] = max(likeness[at], _jaccard(words[at], words[best]))
    return taken


def _jaccard(first: set[str], second: set[str]) -> float:
    both = len(first & second)
    return both / (len(first) + len(second) - both) if both else 0.0
