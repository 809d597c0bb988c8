"""Whether one text matches a query, and where: what the indexes must agree with."""

from __future__ import annotations

from functools import cached_property

from holdfast.storage.search.query import Every, Leaf, Query
from holdfast.storage.search.words import composed, fold, words

# A substring of fewer characters has no trigram to look it up by.
SUBSTRING_CHARS_MIN = 3


class Text:
    """A text with its words at hand."""

    def __init__(self, raw: str) -> None:
        self.composed = composed(raw)

    @cached_property
    def folded(self) -> str:
        """What substrings are looked for in."""
        return fold(self.composed)

    @cached_property
    def words(self) -> list[tuple[str, int, int]]:
        """Every word with its place."""
        return list(words(self.composed))

    @cached_property
    def places(self) -> dict[str, list[int]]:
        """Each word's positions."""
        found: dict[str, list[int]] = {}
        for position, (word, _, _) in enumerate(self.words):
            found.setdefault(word, []).append(position)
        return found

    def matches(self, query: Query, *, substrings: bool = False) -> bool:
        """Whether the text is a hit. What a hit must lack is always meant as whole words."""
        if isinstance(query, Leaf):
            return self._has(query, substrings=substrings)
        if isinstance(query, Every):
            every = all(self.matches(part, substrings=substrings) for part in query.parts)
            return every and not any(self.matches(part) for part in query.without)
        return any(self.matches(part, substrings=substrings) for part in query.parts)

    def find(self, leaf: Leaf, *, substrings: bool = False) -> tuple[int, int] | None:
        """The first place of the leaf in the composed text."""
        position = self._position(leaf)
        if position is not None:
            return self.words[position][1], self.words[position + len(leaf.words) - 1][2]
        if substrings and len(self.folded) == len(self.composed):
            start = self.folded.find(leaf.text)
            if start >= 0:
                return start, start + len(leaf.text)
        return None

    def _has(self, leaf: Leaf, *, substrings: bool) -> bool:
        if substrings and len(leaf.text) >= SUBSTRING_CHARS_MIN:
            return leaf.text in self.folded
        return self._position(leaf) is not None

    def _position(self, leaf: Leaf) -> int | None:
        if len(leaf.words) == 1 and leaf.prefix:
            start = leaf.words[0]
            hits = (places[0] for word, places in self.places.items() if word.startswith(start))
            return min(hits, default=None)
        for position in self._starts(leaf):
            if self._stands_at(leaf, position):
                return position
        return None

    def _starts(self, leaf: Leaf) -> list[int]:
        return self.places.get(leaf.words[0], [])

    def _stands_at(self, leaf: Leaf, position: int) -> bool:
        last = len(leaf.words) - 1
        if position + last >= len(self.words):
            return False
        for offset, wanted in enumerate(leaf.words):
            word = self.words[position + offset][0]
            if word != wanted and not (offset == last and leaf.prefix and word.startswith(wanted)):
                return False
        return True
