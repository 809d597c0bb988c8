"""Globs: what matches for certain, and what may match."""

from __future__ import annotations

import fnmatch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.domain.permissions.globs import ANY, CELLS_MAX, escaped, matches, may_match

TEXTS = st.text(st.sampled_from("ab /."), max_size=8)
PATTERNS = st.text(st.sampled_from("ab */?"), max_size=8).filter(lambda one: "[" not in one)


@given(PATTERNS, TEXTS)
def test_stars_and_question_marks_mean_what_they_mean_elsewhere(pattern: str, text: str) -> None:
    bare = pattern.endswith(" *") and matches(pattern[:-2], text)
    assert matches(pattern, text) == (fnmatch.fnmatchcase(text, pattern) or bare)


@given(PATTERNS, TEXTS, TEXTS, TEXTS)
def test_an_unknown_piece_may_be_anything_and_is_nothing_for_certain(
    pattern: str, head: str, piece: str, tail: str
) -> None:
    whole, partly = head + piece + tail, head + ANY + tail
    if matches(pattern, whole):
        assert may_match(pattern, partly)
    if matches(pattern, partly):
        assert matches(pattern, whole)


@pytest.mark.parametrize(
    ("pattern", "text", "certain", "possible"),
    [
        ("git push*", "git push", True, True),
        ("git push *", "git push", True, True),
        ("git push *", "git pushy", False, False),
        ("git push*", f"git {ANY}", False, True),
        ("git push*", f"ls {ANY}", False, False),
        ("git *", f"git {ANY}", True, True),
        ("git ?", f"git {ANY}", False, True),
        ("git ?", "git x", True, True),
        ("git ?", "git xy", False, False),
        ("a*b*a", "aba", True, True),
        ("a*a", "a", False, False),
        ("git * *", f"git {ANY}", True, True),
    ],
)
def test_a_glob_over_a_text_that_is_known_in_part(
    pattern: str, text: str, *, certain: bool, possible: bool
) -> None:
    assert (matches(pattern, text), may_match(pattern, text)) == (certain, possible)


@given(st.text(st.sampled_from("a*?\\ b"), max_size=8), st.text(st.sampled_from("a*?\\ b")))
def test_an_escaped_text_matches_itself_alone(text: str, other: str) -> None:
    assert matches(escaped(text), text)
    assert matches(escaped(text), other) == (text == other)


def test_a_comparison_that_would_take_long_may_match() -> None:
    text = ANY + "a" * 2000
    assert len(text) * 1000 > CELLS_MAX
    assert may_match("b" * 1000, text)
    assert not may_match("b" * 100, text)
