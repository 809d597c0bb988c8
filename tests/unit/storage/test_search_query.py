"""The query language: what each text means, and that every text means something."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.storage.search.matching import Text
from holdfast.storage.search.query import (
    DEPTH_MAX,
    LEAVES_MAX,
    Every,
    Leaf,
    Query,
    Some,
    leaves,
    parse,
)
from holdfast.storage.search.snippets import snippet


def word(text: str, *, prefix: bool = False) -> Leaf:
    return Leaf((text,), prefix, text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("redis cache", Every((word("redis"), word("cache")))),
        ("redis AND cache", Every((word("redis"), word("cache")))),
        ("redis OR cache", Some((word("redis"), word("cache")))),
        ("redis NOT cache", Every((word("redis"),), (word("cache"),))),
        ("redis AND NOT cache", Every((word("redis"),), (word("cache"),))),
        ("deploy*", word("deploy", prefix=True)),
        ('"exact phrase"', Leaf(("exact", "phrase"), False, "exact phrase")),
        ("chat-send", Leaf(("chat", "send"), False, "chat-send")),
        ("(redis OR cache) x", Every((Some((word("redis"), word("cache"))), word("x")))),
        ("a b OR c", Some((Every((word("a"), word("b"))), word("c")))),
        ("東京", word("東京")),
        ("東", word("東", prefix=True)),
    ],
)
@pytest.mark.req("H-031", "H-034")
def test_a_query_means_what_it_says(text: str, expected: Query) -> None:
    assert parse(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('"unclosed', word("unclosed")),
        ('a "b c', Every((word("a"), word("b"), word("c")))),
        ("redis AND", word("redis")),
        ("OR redis", word("redis")),
        ("NOT redis", word("redis")),
        ("redis NOT", word("redis")),
        (") redis (", word("redis")),
        ("redis ^ & {}", word("redis")),
        ("AND OR NOT", None),
        ("***", None),
        ("", None),
        ("\x00\ud800", None),
        ("🎉", None),
    ],
)
@pytest.mark.req("H-034")
def test_what_makes_no_sense_is_passed_over(text: str, expected: Query | None) -> None:
    assert parse(text) == expected


@given(st.text(max_size=200))
def test_any_text_is_a_query(text: str) -> None:
    parse(text)


@given(st.text(alphabet='ab"()* ANDORT-', max_size=80))
def test_any_heap_of_operators_is_a_query(text: str) -> None:
    query = parse(text)
    if query is not None:
        Text("a b").matches(query)


def test_depth_and_length_have_limits() -> None:
    parse("(" * (DEPTH_MAX * 4) + "a" + ")" * 10)
    query = parse(" ".join(f"w{n}" for n in range(300)))
    assert query is not None
    assert len(leaves(query)) == LEAVES_MAX


@pytest.mark.parametrize(
    ("query", "text", "is_hit"),
    [
        ("chat-send", "the chat-send tool", True),
        ("chat-send", "send a chat", False),
        ('"one two"', "zero one two", True),
        ('"one two"', "one and two", False),
        ('"one tw"*', "one twelve", True),
        ("東京", "大東京都", True),
        ("東京", "京東", False),
        ("cafe", "Café", True),
        ("a NOT b", "a b", False),
        ("(a OR b) AND c", "b c", True),
        ("(a OR b) AND c", "a b", False),
    ],
)
@pytest.mark.req("H-031")
def test_the_matcher_knows_a_hit(query: str, text: str, *, is_hit: bool) -> None:
    parsed = parse(query)
    assert parsed is not None
    assert Text(text).matches(parsed) is is_hit


def test_substrings_match_inside_words_but_exclusions_stay_whole_words() -> None:
    query = parse("serBy NOT bet")
    assert query is not None
    assert Text("getUserById beta").matches(query, substrings=True)
    assert not Text("getUserById bet").matches(query, substrings=True)


@pytest.mark.req("H-033")
def test_a_snippet_marks_the_match_and_keeps_its_surroundings() -> None:
    query = parse("needle")
    assert query is not None
    text = "hay " * 100 + "needle " + "hay " * 100
    shown = snippet(text, leaves(query), substrings=False)
    assert ">>>needle<<<" in shown
    assert shown.startswith("…")
    assert shown.endswith("…")
    assert len(shown) < 260


def test_a_snippet_without_a_place_shows_the_start() -> None:
    query = parse("absent")
    assert query is not None
    assert snippet("only this", leaves(query), substrings=False) == "only this"
