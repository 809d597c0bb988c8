"""How text becomes words: one definition for the index, for queries and for highlighting."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

from holdfast.domain.scripts import UNSPACED

# A base64 line is one word of thousands of characters; nobody looks for its end.
WORD_CHARS_MAX = 64

_RUN = re.compile(r"[^\W_]+")
_JOINED_RUN = re.compile(r"\w{3,}")
_LONG_RUN = re.compile(rf"[0-9A-Za-z]{{{WORD_CHARS_MAX + 1}}}")
_NOT_WORD = re.compile(r"[\W_]+")
_ACCENT = re.compile("[\u0300-\u036f]+")
_PIECE = re.compile(f"[{UNSPACED}]+|[^{UNSPACED}]+")
_IS_UNSPACED = re.compile(f"[{UNSPACED}]")


class Word(NamedTuple):
    """One word as the index knows it, and where it stands in the text."""

    text: str
    start: int
    end: int


def composed(text: str) -> str:
    """The text that offsets count in: accents joined to their letters."""
    return text if text.isascii() else unicodedata.normalize("NFC", text)


def fold(text: str) -> str:
    """The spelling that equal-looking texts share: no case, no accents, no width."""
    if text.isascii():
        return text.lower()
    decomposed = unicodedata.normalize("NFKD", text.casefold())
    return unicodedata.normalize("NFKC", _ACCENT.sub("", decomposed)).casefold()


def words(text: str) -> Iterator[Word]:
    """The words of `composed` text, in order; unspaced scripts as overlapping pairs."""
    for run in _RUN.finditer(text):
        raw = run.group()
        if raw.isascii():
            yield Word(raw[:WORD_CHARS_MAX].lower(), run.start(), run.end())
        elif _IS_UNSPACED.search(raw):
            for piece in _PIECE.finditer(raw):
                yield from _piece_words(piece.group(), run.start() + piece.start())
        elif word := _folded_word(raw):
            yield Word(word, run.start(), run.end())


def word_texts(text: str) -> list[str]:
    """Just the words."""
    return [word.text for word in words(composed(text))]


def indexed_text(text: str) -> str:
    """The words with spaces between, as the index's tokenizer splits them again.

    That tokenizer reads ASCII exactly as `words` does, so ASCII goes to it as it is.
    """
    if text.isascii() and not _LONG_RUN.search(text):
        return text
    return " ".join(word_texts(text))


def trigrams(folded: str) -> set[str]:
    """Every three characters in a row inside the words of a folded text.

    None with a space in it: they would be near half of all, and what they find is checked anyway.
    None of unspaced scripts: their pairs find every substring already.
    """
    found: set[str] = set()
    for run in set(_JOINED_RUN.findall(folded)):
        found.update(run[at : at + 3] for at in range(len(run) - 2))
    return {each for each in found if each.isascii() or not _IS_UNSPACED.search(each)}


def is_unspaced(character: str) -> bool:
    """Whether the character belongs to a script that is indexed by pairs."""
    return _IS_UNSPACED.match(character) is not None


def _piece_words(piece: str, start: int) -> Iterator[Word]:
    if not is_unspaced(piece[0]):
        if word := _folded_word(piece):
            yield Word(word, start, start + len(piece))
        return
    folded = _NOT_WORD.sub("", fold(piece))
    aligned = len(folded) == len(piece)
    for position in range(len(folded)):
        pair = folded[position : position + 2]
        if aligned:
            yield Word(pair, start + position, start + position + len(pair))
        else:
            yield Word(pair, start, start + len(piece))


@lru_cache(maxsize=65_536)
def _folded_word(raw: str) -> str:
    """Folding may leave punctuation behind: a parenthesised digit becomes three characters."""
    return _NOT_WORD.sub("", fold(raw))[:WORD_CHARS_MAX]
