"""The folders that hold the product's own things: no session works in them or sees into them."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path

# How the supervisor tells the terminal host which they are.
VARIABLE = "HOLDFAST_HIDDEN"


def is_hidden(path: Path, places: Iterable[Path], *, given: Path | None = None) -> bool:
    """Whether the real path lies in such a place, and not in the folder a session was given there.

    Chats and imported sessions have folders below the home: in theirs they see what is their own.
    """
    for place in places:
        inside = path.is_relative_to(place)
        own = given is not None and given.is_relative_to(place) and path.is_relative_to(given)
        if inside and not (own and given != place):
            return True
    return False


def as_variable(places: Iterable[Path]) -> str:
    """The places as the value of an environment variable."""
    return os.pathsep.join(str(place) for place in places)


def of_variable(value: str | None) -> Iterator[Path]:
    """The places that `as_variable` wrote."""
    return (Path(one) for one in (value or "").split(os.pathsep) if one)
