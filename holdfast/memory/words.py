"""Words as the index knows them: FTS5 splits by spaces, so scripts without any become pairs."""

from __future__ import annotations

import re
import unicodedata

from holdfast.domain.scripts import UNSPACED

TERMS_MAX = 64

# Words that a question is made of and an answer is not. In a small index even they would seem rare.
STOP_WORDS = frozenset(
    """a about am an and any are as at be been but by can could did do does for from had has have
    how i if in is it its me my of on or our shall should so some that the their them then there
    these they this those to us was we were what when where which who whom why will with would you
    your""".split()  # noqa: SIM905 - eighty quotes would not make it easier to read
)

_UNSPACED_RUN = re.compile(f"[{UNSPACED}]+")
_TERM = re.compile(rf"[{UNSPACED}]+|(?:(?![{UNSPACED}])[^\W_])+")


def indexed(text: str) -> str:
    """The text for FTS5: 東京都 is indexed as 東京 京都 都, so that two characters find it."""
    if text.isascii():
        return text
    return _UNSPACED_RUN.sub(_pairs_between_spaces, unicodedata.normalize("NFC", text))


def terms_of(query: str) -> list[str]:
    """What to look for, each once; any text is a query, and some have no terms.

    Stop words are left out where anything else remains; in capitals they are names.
    """
    clean = unicodedata.normalize("NFC", query.encode("utf-8", "ignore").decode())
    found: dict[str, str] = {}
    for run in _TERM.findall(clean):
        if _UNSPACED_RUN.match(run) and len(run) > 1:
            # The last character stands alone in the index, but a query's run may go on in a text.
            found.update((pair, pair) for pair in _pairs(run)[:-1])
        else:
            found.setdefault(run.casefold(), run)
    told = [term for key, term in found.items() if key not in STOP_WORDS or _is_name(term)]
    return (told or list(found.values()))[:TERMS_MAX]


def match_any(terms: list[str]) -> str:
    """An FTS5 query for texts with at least one of the terms."""
    return " OR ".join(_quoted(term) for term in terms)


def match_all(terms: list[str]) -> str:
    """An FTS5 query for texts with all of the terms."""
    return " AND ".join(_quoted(term) for term in terms)


def _is_name(term: str) -> bool:
    return len(term) > 1 and term.isupper()


def _quoted(term: str) -> str:
    # A term has only letters and digits, so quotes make it a plain string to FTS5.
    return f'"{term}"*' if len(term) == 1 and _UNSPACED_RUN.match(term) else f'"{term}"'


def _pairs_between_spaces(run: re.Match[str]) -> str:
    return f" {' '.join(_pairs(run.group()))} "


def _pairs(run: str) -> list[str]:
    return [run[at : at + 2] for at in range(len(run))]
