"""Text is always valid Unicode, and long outputs are cut to their limit."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.agent.conversation import Turn, repair
from holdfast.agent.text import Joiner, clean, clean_json
from holdfast.agent.tools.outcome import ToolOutcome

ODD = st.text(st.sampled_from(["a", "ü", "\ud83d", "\ude00", "😀"]), max_size=12)


@settings(derandomize=True, max_examples=80, deadline=None)
@given(ODD)
def test_clean_text_can_always_be_encoded(text: str) -> None:
    assert clean(clean(text)) == clean(text)
    clean(text).encode("utf-8")


@settings(derandomize=True, max_examples=80, deadline=None)
@given(st.lists(ODD, max_size=6))
def test_joined_pieces_are_the_clean_whole(pieces: list[str]) -> None:
    joiner = Joiner()
    joined = "".join(joiner.add(piece) for piece in pieces)
    joined.encode("utf-8")
    assert clean("".join(pieces)).startswith(joined)


def test_a_pair_that_was_cut_is_put_together_again() -> None:
    joiner = Joiner()
    assert [joiner.add("hi \ud83d"), joiner.add("\ude00!")] == ["hi ", "😀!"]


def test_strings_inside_arguments_are_cleaned() -> None:
    assert clean_json({"a": ["\ud83d\ude00", "\ud83d"]}) == {"a": ["😀", "\ufffd"]}
    assert clean_json({"a": 1}) == {"a": 1}


def test_a_repaired_conversation_is_clean() -> None:
    assert repair([Turn("user", "x\ud83d")]) == [Turn("user", "x\ufffd")]


def test_an_outcome_reads_as_text_or_as_json() -> None:
    assert ToolOutcome("plain").text == "plain"
    assert ToolOutcome({"a": "ü"}).text == '{"a": "ü"}'
