"""Text as the numbers that BERT's uncased models read: words, cut into pieces it knows."""

from __future__ import annotations

import gzip
import unicodedata
from collections.abc import Iterator
from functools import cache
from importlib import resources

WORD_CHARACTERS_MAX = 100
_UNSEEN = frozenset({"Cc", "Cf", "Co", "Cs"})
_UNKNOWN, _START, _END = "[UNK]", "[CLS]", "[SEP]"
_CJK = (
    (0x4E00, 0x9FFF), (0x3400, 0x4DBF), (0x20000, 0x2A6DF), (0x2A700, 0x2B73F),
    (0x2B740, 0x2B81F), (0x2B820, 0x2CEAF), (0xF900, 0xFAFF), (0x2F800, 0x2FA1F),
)  # fmt: skip


@cache
def vocabulary() -> dict[str, int]:
    """BERT's pieces and their numbers."""
    packed = resources.files("holdfast.memory.embedders").joinpath("vocabulary.txt.gz").read_bytes()
    return {
        piece: number for number, piece in enumerate(gzip.decompress(packed).decode().split("\n"))
    }


def encode(text: str, *, length_max: int, windows_max: int) -> list[list[int]]:
    """The numbers of a text in windows that a model can read, each between its two marks.

    At least one window; what is left after `windows_max` of them is cut.
    """
    known = vocabulary()
    room = length_max - 2
    numbers: list[int] = []
    for word in _words(text):
        numbers += _pieces(word, known)
        if len(numbers) >= room * windows_max:
            break
    ends = range(room, min(max(len(numbers), 1), room * windows_max) + room, room)
    return [[known[_START], *numbers[end - room : end], known[_END]] for end in ends]


def _pieces(word: str, known: dict[str, int]) -> list[int]:
    """The longest pieces from the left; a word that has a part without a piece is unknown."""
    if len(word) > WORD_CHARACTERS_MAX:
        return [known[_UNKNOWN]]
    found: list[int] = []
    start = 0
    while start < len(word):
        end = len(word)
        while end > start:
            number = known.get(("##" if start else "") + word[start:end])
            if number is not None:
                break
            end -= 1
        else:
            return [known[_UNKNOWN]]
        found.append(number)
        start = end
    return found


def _words(text: str) -> Iterator[str]:
    """Lower case, no accents; punctuation and CJK characters are words of their own."""
    plain = unicodedata.normalize("NFD", "".join(_cleaned(text)).lower())
    word: list[str] = []
    for character in plain:
        if unicodedata.category(character) == "Mn":
            continue
        if character.isspace() or _is_punctuation(character):
            if word:
                yield "".join(word)
                word = []
            if not character.isspace():
                yield character
        else:
            word.append(character)
    if word:
        yield "".join(word)


def _cleaned(text: str) -> Iterator[str]:
    for character in text:
        if character in "\t\n\r":
            yield " "
        elif character in "\x00\ufffd" or unicodedata.category(character) in _UNSEEN:
            continue
        elif _is_cjk(character):
            yield f" {character} "
        elif unicodedata.category(character) == "Zs":
            yield " "
        else:
            yield character


def _is_cjk(character: str) -> bool:
    number = ord(character)
    return number >= 0x3400 and any(low <= number <= high for low, high in _CJK)


def _is_punctuation(character: str) -> bool:
    """All of ASCII that is no letter, digit or space counts, as BERT has it."""
    number = ord(character)
    if number < 128:
        return number >= 33 and not character.isalnum()
    return unicodedata.category(character).startswith("P")
