"""Words: what the index and the query agree on."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.storage.search.words import (
    WORD_CHARS_MAX,
    composed,
    fold,
    indexed_text,
    word_texts,
    words,
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Fix chat-send NOW", ["fix", "chat", "send", "now"]),
        ("snake_case_name", ["snake", "case", "name"]),
        ("café", ["cafe"]),
        ("cafe\u0301", ["cafe"]),
        ("Straße", ["strasse"]),
        ("ＡＢＣ", ["abc"]),
        ("東京タワー", ["東京", "京タ", "タワ", "ワー", "ー"]),
        ("v2東京x", ["v2", "東京", "京", "x"]),
        ("⑴", ["1"]),
        ("", []),
        ("!!! ---", []),
    ],
)
@pytest.mark.req("H-010", "H-012")
def test_text_becomes_words(text: str, expected: list[str]) -> None:
    assert word_texts(text) == expected


def test_a_very_long_word_is_cut() -> None:
    assert word_texts("x" * 500) == ["x" * WORD_CHARS_MAX]


@given(st.text(max_size=60))
def test_words_stand_where_they_say(text: str) -> None:
    whole = composed(text)
    for word in words(whole):
        assert 0 <= word.start < word.end <= len(whole)
        assert word.text


@given(st.text(max_size=60))
def test_folding_twice_changes_nothing(text: str) -> None:
    assert fold(fold(text)) == fold(text)


@given(st.text(alphabet=st.characters(max_codepoint=127), max_size=80))
def test_ascii_text_goes_to_the_index_as_it_is(text: str) -> None:
    assert indexed_text(text) == text or "x" * 65 not in text
