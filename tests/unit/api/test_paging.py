"""Pages: none is cut short, none is followed by an empty one, and no cursor is made up."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from api.paging import by_time, cut, read_number, read_time
from holdfast.domain.errors import ValidationFailed


@dataclass
class Row:
    created_at: int
    id: str


@pytest.mark.parametrize(
    ("found", "shown", "following"),
    [([], [], None), ([1], [1], None), ([1, 2], [1, 2], None), ([1, 2, 3], [1, 2], "2")],
)
def test_a_cursor_is_given_only_when_a_row_is_left_over(
    found: list[int], shown: list[int], following: str | None
) -> None:
    assert cut(found, 2, str) == (shown, following)


def test_a_cursor_in_time_leads_back_to_its_row() -> None:
    assert read_time(by_time(Row(17, "abc"))) == (17, "abc")
    assert read_time(None) is None


@pytest.mark.parametrize("cursor", ["", "-1", "1.5", "x", "²", "١", "101", "9" * 512])
def test_only_a_number_up_to_the_most_is_a_cursor(cursor: str) -> None:
    assert read_number("100", most=100) == 100
    with pytest.raises(ValidationFailed, match="gave out"):
        read_number(cursor, most=100)
