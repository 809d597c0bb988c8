r"""Globs over commands, paths and URLs, also over a text that is known only in part.

`*` is any text, `?` one character, `\*`, `\?` and `\\` are those characters themselves.
"""

from __future__ import annotations

import re
from functools import lru_cache

# Stands in a text for what only the shell will know: a variable, a list of file names, an output.
ANY = "\0"
STAR, ONE = "*any", "?one"
# More work than this is not done for one comparison: the answer is then "it may match".
CELLS_MAX = 1_000_000


def matches(pattern: str, text: str) -> bool:
    """Whether the glob matches the text, whatever its unknown pieces turn out to be.

    `git push *` matches `git push` as well.
    """
    if pattern.endswith(" *") and matches(pattern[:-2], text):
        return True
    first, *between = _pieces(pattern)
    if not between:
        return first.fullmatch(text) is not None
    found, last = first.match(text), between.pop()
    for piece in between:
        # The leftmost place is the best one: it leaves most of the text to the rest.
        found = None if found is None else piece.search(text, found.end())
    end = len(text) - _tail(pattern)
    return found is not None and found.end() <= end and last.fullmatch(text, end) is not None


def may_match(pattern: str, text: str) -> bool:
    """Whether the glob could match the text, its unknown pieces being anything."""
    if ANY not in text:
        return matches(pattern, text)
    if pattern.endswith(" *") and may_match(pattern[:-2], text):
        return True
    if len(pattern) * len(text) > CELLS_MAX:
        return True
    # row[at]: the tokens so far may match the first `at` characters of the text.
    row = [True]
    for letter in text:
        row.append(row[-1] and letter == ANY)
    for token in _tokens(pattern):
        row = _next_row(row, token, text)
    return row[-1]


def escaped(text: str) -> str:
    """A pattern that matches this text alone."""
    return re.sub(r"([*?\\])", r"\\\1", text)


def _next_row(row: list[bool], token: str, text: str) -> list[bool]:
    following = [row[0] and token == STAR]
    for at, letter in enumerate(text, 1):
        if token == STAR:
            reached = row[at] or following[at - 1]
        elif letter == ANY:
            # It may be nothing, this character, or this character and more.
            reached = row[at - 1] or row[at] or following[at - 1]
        else:
            reached = row[at - 1] and token in (ONE, letter)
        following.append(reached)
    return following


@lru_cache(maxsize=1024)
def _tokens(pattern: str) -> tuple[str, ...]:
    found = re.findall(r"\\[*?\\]|.", pattern, re.DOTALL)
    special = {"*": STAR, "?": ONE}
    return tuple(special.get(one, one[-1]) for one in found)


@lru_cache(maxsize=1024)
def _pieces(pattern: str) -> tuple[re.Pattern[str], ...]:
    """What stands between the stars; `?` is one character that is known."""
    pieces = [""]
    for token in _tokens(pattern):
        if token == STAR:
            pieces.append("")
        else:
            pieces[-1] += "[^\0]" if token == ONE else re.escape(token)
    return tuple(re.compile(piece, re.DOTALL) for piece in pieces)


def _tail(pattern: str) -> int:
    """How many characters follow the last star."""
    tokens = _tokens(pattern)
    return tokens[::-1].index(STAR)
