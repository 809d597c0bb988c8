"""The query language: words, "phrases", AND, OR, NOT, ( ), prefix*. Any text is a valid query."""

from __future__ import annotations

import re
from dataclasses import dataclass

from holdfast.storage.search.words import composed, fold, is_unspaced, word_texts

QUERY_CHARS_MAX = 2_000
LEAVES_MAX = 64
WORDS_IN_PHRASE_MAX = 64
DEPTH_MAX = 32

_LEXEMES = re.compile(r'"(?P<phrase>[^"]*)"(?P<star>\*?)|(?P<paren>[()])|(?P<word>[^\s()"]+)')
_QUOTES = str.maketrans({"“": '"', "”": '"', "„": '"', "«": '"', "»": '"'})
_OPERATORS = ("AND", "OR", "NOT")


@dataclass(frozen=True)
class Leaf:
    """Words that must follow each other; with `prefix` the last one may go on."""

    words: tuple[str, ...]
    prefix: bool
    text: str  # folded, as it was written: what a substring search looks for


@dataclass(frozen=True)
class Every:
    """All of `parts` and none of `without`."""

    parts: tuple[Query, ...]
    without: tuple[Query, ...] = ()


@dataclass(frozen=True)
class Some:
    """At least one of `parts`."""

    parts: tuple[Query, ...]


Query = Leaf | Every | Some


def parse(text: str) -> Query | None:
    """The query that the text means, or None when no word is left of it."""
    clean = text[:QUERY_CHARS_MAX].encode("utf-8", "ignore").decode().replace("\x00", " ")
    return _Parser(composed(clean.translate(_QUOTES))).query()


def leaves(query: Query) -> list[Leaf]:
    """The leaves that a hit contains, in the order of the query; not those it must lack."""
    if isinstance(query, Leaf):
        return [query]
    return [leaf for part in query.parts for leaf in leaves(part)]


@dataclass(frozen=True)
class _Lexeme:
    kind: str  # phrase | ( | ) | word | AND | OR | NOT
    text: str = ""
    star: bool = False


class _Parser:
    """Recursive descent. What makes no sense at its place is passed over."""

    def __init__(self, text: str) -> None:
        self._lexemes = [_lexeme(found) for found in _LEXEMES.finditer(text)]
        self._position = 0
        self._leaves = 0

    def query(self) -> Query | None:
        found: list[Query] = []
        while self._position < len(self._lexemes):
            part = self._some(0)
            if part is not None:
                found.append(part)
            self._take(")")  # one that nothing opened
        return _every(found, [])

    def _some(self, depth: int) -> Query | None:
        parts = [self._every(depth)]
        while self._take("OR"):
            parts.append(self._every(depth))
        kept = tuple(part for part in parts if part is not None)
        return Some(kept) if len(kept) > 1 else (kept[0] if kept else None)

    def _every(self, depth: int) -> Query | None:
        wanted: list[Query] = []
        unwanted: list[Query] = []
        while (lexeme := self._peek()) is not None and lexeme.kind not in (")", "OR"):
            if self._take("AND"):
                continue
            negated = False
            while self._take("NOT") or self._take("AND"):
                negated = True
            part = self._primary(depth)
            if part is not None:
                (unwanted if negated else wanted).append(part)
        return _every(wanted, unwanted)

    def _primary(self, depth: int) -> Query | None:
        lexeme = self._peek()
        if lexeme is None or lexeme.kind in (")", "OR"):
            return None
        self._position += 1
        if lexeme.kind != "(":
            return self._leaf(lexeme)
        if depth >= DEPTH_MAX:
            return None
        inner = self._some(depth + 1)
        self._take(")")
        return inner

    def _leaf(self, lexeme: _Lexeme) -> Leaf | None:
        leaf = _leaf(lexeme.text, star=lexeme.star)
        if leaf is None or self._leaves >= LEAVES_MAX:
            return None
        self._leaves += 1
        return leaf

    def _peek(self) -> _Lexeme | None:
        at_end = self._position >= len(self._lexemes)
        return None if at_end else self._lexemes[self._position]

    def _take(self, kind: str) -> bool:
        lexeme = self._peek()
        if lexeme is None or lexeme.kind != kind:
            return False
        self._position += 1
        return True


def _lexeme(found: re.Match[str]) -> _Lexeme:
    if found["phrase"] is not None:
        return _Lexeme("phrase", found["phrase"], star=bool(found["star"]))
    if found["paren"]:
        return _Lexeme(found["paren"])
    word = found["word"]
    if word in _OPERATORS:
        return _Lexeme(word)
    return _Lexeme("word", word.rstrip("*"), star=word.endswith("*"))


def _leaf(text: str, *, star: bool) -> Leaf | None:
    found = word_texts(text)[:WORDS_IN_PHRASE_MAX]
    if not found:
        return None
    prefix = star
    if is_unspaced(found[-1][0]):
        # The index holds pairs and, at the end of a run, the last character alone. A run in a
        # query may go on in the text, so its own last character is left out; alone it is a prefix.
        if len(found) > 1 and len(found[-2]) == 2 and found[-2][1] == found[-1]:
            found.pop()
            prefix = False
        else:
            prefix = True
    return Leaf(tuple(found), prefix, fold(text.strip()))


def _every(wanted: list[Query], unwanted: list[Query]) -> Query | None:
    if not wanted:
        # Nothing is left to take away from: the operators dangle and are dropped (H-034).
        wanted, unwanted = unwanted, []
    if len(wanted) == 1 and not unwanted:
        return wanted[0]
    return Every(tuple(wanted), tuple(unwanted)) if wanted else None
