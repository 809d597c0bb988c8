"""Pages of a list: the rows that fit, and a cursor where more follow.

Ask the store for one row more than fits: it alone says whether there is another page.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeVar

from holdfast.domain.errors import ValidationFailed
from holdfast.storage.sessions.session_views import make_cursor, read_cursor

Row = TypeVar("Row")


class Created(Protocol):
    """A row of a list that is ordered by time."""

    created_at: int
    id: str


def cut(
    rows: list[Row], limit: int, cursor_of: Callable[[Row], str]
) -> tuple[list[Row], str | None]:
    """The first `limit` rows, and the cursor of the next page if one row is left over."""
    return rows[:limit], cursor_of(rows[limit - 1]) if len(rows) > limit else None


def by_time(row: Created) -> str:
    """The cursor behind a row of a list that is ordered by time."""
    return make_cursor(row.created_at, row.id)


def read_time(cursor: str | None) -> tuple[int, str] | None:
    """The time and id in a cursor of `by_time`, or None for the first page."""
    return None if cursor is None else read_cursor(cursor)


def read_number(cursor: str, *, most: int) -> int:
    """The number that a cursor is, from 0 to `most`, or ValidationFailed."""
    if not (cursor.isascii() and cursor.isdigit()) or int(cursor) > most:
        raise ValidationFailed("cursor is not one that this server gave out")
    return int(cursor)
