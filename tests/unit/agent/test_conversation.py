"""Repaired conversations are valid for OpenAI and Anthropic, whatever they were before."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.agent.conversation import (
    CONTINUED,
    EMPTY,
    INTERRUPTED,
    Role,
    ToolCall,
    Turn,
    portable_id,
    repair,
)
from tests.support.message_format import broken_rules

ROLES: tuple[Role, ...] = ("system", "user", "assistant", "tool")
IDS = st.sampled_from(["a", "b", "c", "call 1!", "x" * 50, ""])


def call(call_id: str, name: str = "shell") -> ToolCall:
    return ToolCall(call_id, name, {})


def result(call_id: str, text: str = "ok") -> Turn:
    return Turn("tool", text, tool_call_id=call_id, tool_name="shell")


turns = st.lists(
    st.builds(
        Turn,
        role=st.sampled_from(ROLES),
        text=st.sampled_from(["", " ", "hello", "ok"]),
        tool_calls=st.lists(
            st.builds(ToolCall, IDS, st.sampled_from(["shell", "kaged.todo", ""])), max_size=3
        ).map(tuple),
        tool_call_id=st.none() | IDS,
    ),
    max_size=12,
)


@settings(derandomize=True, max_examples=100, deadline=None)
@given(turns)
def test_a_repaired_conversation_breaks_no_rule(broken: list[Turn]) -> None:
    assert broken_rules(repair(broken)) == []


@settings(derandomize=True, max_examples=100, deadline=None)
@given(turns)
def test_repairing_twice_changes_nothing_more(broken: list[Turn]) -> None:
    once = repair(broken)
    assert repair(once) == once


@settings(derandomize=True, max_examples=100, deadline=None)
@given(turns)
def test_repair_loses_no_text_of_people_or_models(broken: list[Turn]) -> None:
    said = [t.text for t in broken if t.role != "tool" and t.text.strip()]
    kept = [t.text for t in repair(broken) if t.role != "tool" and t.text.strip()]
    assert [text for text in kept if text not in {CONTINUED, EMPTY}] == said


def test_a_valid_conversation_is_left_as_it_is() -> None:
    valid = [
        Turn("system", "Be brief."),
        Turn("user", "List."),
        Turn("assistant", "", (call("a"), call("b"))),
        result("a"),
        result("b"),
        Turn("assistant", "Done."),
    ]
    assert broken_rules(valid) == []
    assert repair(valid) == valid


def test_a_call_without_a_result_gets_one_that_says_so() -> None:
    repaired = repair([Turn("user", "go"), Turn("assistant", "", (call("a"),)), Turn("user", "?")])
    assert repaired[2] == Turn("tool", INTERRUPTED, tool_call_id="a", tool_name="shell")
    assert INTERRUPTED == "interrupted; unknown whether it took effect"


def test_a_result_without_a_call_is_left_out() -> None:
    assert repair([Turn("user", "go"), result("nobody")]) == [Turn("user", "go")]


def test_results_move_to_their_call_and_only_the_first_counts() -> None:
    repaired = repair(
        [
            Turn("user", "go"),
            Turn("assistant", "", (call("a"), call("b"))),
            Turn("system", "a notice in between"),
            result("b", "second"),
            result("a", "first"),
            result("a", "again"),
        ]
    )
    assert [turn.text for turn in repaired] == ["go", "", "first", "second", "a notice in between"]


def test_a_conversation_that_starts_with_an_answer_gets_a_beginning() -> None:
    repaired = repair([Turn("system", "s"), Turn("assistant", "hello")])
    assert [turn.role for turn in repaired] == ["system", "user", "assistant"]


@pytest.mark.parametrize(
    ("turns", "problem"),
    [
        ([Turn("assistant", "hi")], "the first turn must be the user's"),
        ([Turn("user", "")], "is empty"),
        ([Turn("user", "x"), result("a")], "answers no call"),
        ([Turn("user", "x"), Turn("assistant", "", (call("a"),))], "no results of a"),
        ([Turn("user", "x", (call("a"),)), result("a")], "only the assistant calls tools"),
        (
            [
                Turn("user", "x"),
                Turn("assistant", "", (call("a"),)),
                Turn("user", "y"),
                result("a"),
            ],
            "comes before the results of a",
        ),
        (
            [Turn("user", "x"), Turn("assistant", "", (call("a"), call("a"))), result("a")],
            "used twice",
        ),
        ([Turn("user", "x"), Turn("assistant", "", (call("ü"),)), result("ü")], "not portable"),
        (
            [Turn("user", "x"), Turn("assistant", "", (call("a", "no name"),)), result("a")],
            "tool name 'no name' is not portable",
        ),
    ],
)
def test_each_broken_rule_is_named(turns: list[Turn], problem: str) -> None:
    assert any(problem in found for found in broken_rules(turns))


def test_a_foreign_id_becomes_the_same_portable_one_each_time() -> None:
    assert portable_id("tool call/1") == portable_id("tool call/1") != portable_id("tool call/2")
    assert portable_id("call_1") == "call_1"
