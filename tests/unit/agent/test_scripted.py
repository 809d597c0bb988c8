"""The scripted model: deterministic, repeatable, and friendly without a script."""

from __future__ import annotations

import asyncio
import json
from decimal import Decimal
from typing import Any

import pytest

from holdfast.agent.compaction import Entry
from holdfast.agent.conversation import ModelAnswer, Turn, Usage
from holdfast.agent.errors import (
    ContextOverflow,
    PassingProviderError,
    PermanentProviderError,
    ProviderError,
)
from holdfast.agent.providers import complete, resolve
from holdfast.agent.summary import summary_request, summary_text
from holdfast.agent.tools.specs import ALL
from holdfast.settings.config import Config


def scripted(*elements: Any) -> Turn:
    return Turn("user", json.dumps({"script": elements}))


async def ask(*turns: Turn, model: str = "demo", pieces: list[str] | None = None) -> ModelAnswer:
    route = resolve(Config(), f"scripted:{model}")
    heard = pieces if pieces is not None else []
    return await complete(route, turns, ALL, on_text=heard.append)


async def play(question: Turn, limit: int = 50) -> list[ModelAnswer]:
    """The whole run: every call is answered by a tool that says ok."""
    turns = [question]
    answers: list[ModelAnswer] = []
    while not answers or (answers[-1].tool_calls and len(answers) < limit):
        answer = await ask(*turns)
        answers.append(answer)
        turns.append(Turn("assistant", answer.text, answer.tool_calls))
        turns += [
            Turn("tool", "ok", tool_call_id=call.id, tool_name=call.name)
            for call in answer.tool_calls
        ]
    return answers


async def test_each_model_call_plays_the_next_element() -> None:
    answers = await play(
        scripted(
            {"call": "shell", "arguments": {"command": "make"}},
            {"calls": [{"call": "grep", "arguments": {"pattern": "x"}}], "say": "Looking."},
            {"say": "Done."},
        )
    )
    assert [answer.text for answer in answers] == ["", "Looking.", "Done."]
    assert answers[0].tool_calls[0].arguments == {"command": "make"}
    assert answers[0].finish_reason == "tool_calls"


async def test_the_same_turns_give_the_same_answer_again() -> None:
    question = scripted({"call": "shell", "arguments": {"command": "date"}})
    assert await ask(question) == await ask(question)


async def test_a_repeat_is_counted_and_then_the_script_goes_on() -> None:
    answers = await play(
        scripted(
            {"repeat": 3, "step": {"call": "shell", "arguments": {"command": "true"}}},
            {"say": "end"},
        )
    )
    assert [len(answer.tool_calls) for answer in answers] == [1, 1, 1, 0]
    assert answers[-1].text == "end"


async def test_a_large_repeat_is_not_unrolled() -> None:
    step = {"call": "shell", "arguments": {"command": "true"}}
    answer = await ask(scripted({"repeat": 10**9, "step": step}))
    assert answer.tool_calls[0].name == "shell"


async def test_a_step_that_compaction_took_away_is_not_played_again() -> None:
    question = scripted(
        *({"call": "shell", "arguments": {"command": f"echo {n}"}} for n in range(5))
    )
    answers = await play(question)
    kept = answers[3]
    turns = [
        question,
        Turn("assistant", "", kept.tool_calls),
        Turn("tool", "ok", tool_call_id=kept.tool_calls[0].id, tool_name="shell"),
    ]
    assert (await ask(*turns)).tool_calls[0].arguments == {"command": "echo 4"}
    shown = [Turn("user", summary_text("## Goal\nx")), *turns]
    assert (await ask(*shown)).tool_calls[0].arguments == {"command": "echo 4"}


async def test_after_the_last_element_it_says_that_it_is_over() -> None:
    assert (await ask(scripted())).text == "The script is finished."


async def test_a_script_may_stand_in_a_fenced_block() -> None:
    message = 'Please:\n```script\n[{"say": "From the block."}]\n```\nThanks.'
    assert (await ask(Turn("user", message))).text == "From the block."


async def test_text_comes_in_as_many_pieces_as_asked() -> None:
    pieces: list[str] = []
    await ask(scripted({"say": "abcdefgh", "chunks": 4, "every_ms": 1}), pieces=pieces)
    assert pieces == ["ab", "cd", "ef", "gh"]
    pieces.clear()
    await ask(scripted({"deltas": 200, "every_ms": 0}), pieces=pieces)
    assert len(pieces) == 200


@pytest.mark.parametrize(
    ("error", "kind", "code"),
    [
        (401, PermanentProviderError, "authentication_failed"),
        (400, PermanentProviderError, "bad_request"),
        (404, PermanentProviderError, "model_not_found"),
        (429, PassingProviderError, "rate_limited"),
        (500, PassingProviderError, "provider_error"),
        ("connection", PassingProviderError, "provider_unreachable"),
        ("overflow", ContextOverflow, "context_overflow"),
    ],
)
async def test_errors_are_those_of_real_providers(
    error: int | str, kind: type[ProviderError], code: str
) -> None:
    with pytest.raises(kind) as raised:
        await ask(scripted({"error": error}))
    assert raised.value.code == code


async def test_an_overflow_above_a_size_goes_away_with_compaction() -> None:
    question = scripted({"say": "fits", "overflow_above": 200})
    with pytest.raises(ContextOverflow):
        await ask(Turn("user", "word " * 500), Turn("assistant", "yes"), question)
    assert (await ask(question)).text == "fits"


async def test_a_hanging_call_can_be_cancelled() -> None:
    task = asyncio.create_task(ask(scripted({"hang_s": 600})))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_a_broken_stream_is_a_passing_error_after_its_text() -> None:
    pieces: list[str] = []
    with pytest.raises(PassingProviderError):
        await ask(scripted({"say": "half", "drop": True}), pieces=pieces)
    assert pieces == ["half"]


async def test_usage_may_be_scripted_and_is_free_of_charge() -> None:
    answer = await ask(scripted({"say": "x", "usage": {"input_tokens": 9, "output_tokens": 4}}))
    assert answer.usage == Usage(9, 4)
    assert (answer.cost_usd, answer.cost_status) == (Decimal(0), "actual")


@pytest.mark.parametrize(
    "script",
    [
        "```script\n5\n```",
        '{"script": [{"usage": {"input_tokens": "many"}}]}',
        '{"script": ["say"]}',
        '{"script": [{"shout": "x"}]}',
        '{"script": [{"calls": [{}]}]}',
        '{"script": [{"repeat": "often"}]}',
        '{"script": [{"usage": {"tokens": 1}}]}',
        '{"script": [{"say": 5}]}',
        '{"script": [{"every_ms": "often"}]}',
        '{"script": [{"hang_s": NaN}]}',
        '{"script": [{"chunks": -1}]}',
        '{"script": [{"error": "earthquake"}]}',
        '{"script": [{"calls": "shell"}]}',
        '{"script": [{"repeat": 2, "step": 5}]}',
        "```script\nnot json\n```",
    ],
)
async def test_a_script_that_cannot_be_read_fails_the_call_for_good(script: str) -> None:
    with pytest.raises(PermanentProviderError) as raised:
        await ask(Turn("user", script))
    assert raised.value.code == "bad_script"


async def test_json_that_is_no_script_is_a_message_like_any_other() -> None:
    for message in ('{"script": "build.sh"}', '{"script": ' + "[" * 200_000):
        answer = await ask(Turn("user", message), model="echo")
        assert answer.text == f"You said: {message}"


async def test_arguments_that_are_no_object_are_noted() -> None:
    answer = await ask(scripted({"call": "shell", "arguments": "ls"}))
    assert answer.tool_calls[0].arguments == {}
    assert answer.tool_calls[0].invalid_arguments


async def test_the_demo_says_what_it_is_and_how_to_get_a_real_model() -> None:
    pieces: list[str] = []
    answer = await ask(Turn("user", "Hello!"), pieces=pieces)
    assert "scripted demo" in answer.text
    assert "config.toml" in answer.text
    assert 20 <= len(pieces) <= 40


@pytest.mark.parametrize(
    ("message", "tool", "arguments"),
    [
        ("Please list my files", "list_files", {}),
        ("What files are here?", "list_files", {}),
        ("run `make test`", "shell", {"command": "make test"}),
        ("run something", "shell", {"command": "echo Hello from Holdfast && date"}),
    ],
)
async def test_the_demo_uses_a_tool_when_asked_to(
    message: str, tool: str, arguments: dict[str, str]
) -> None:
    first = await ask(Turn("user", message))
    assert [(call.name, call.arguments) for call in first.tool_calls] == [(tool, arguments)]
    call = first.tool_calls[0]
    second = await ask(
        Turn("user", message),
        Turn("assistant", first.text, first.tool_calls),
        Turn("tool", "README.md", tool_call_id=call.id, tool_name=tool),
    )
    assert not second.tool_calls
    assert "README.md" in second.text


async def test_echo_repeats_what_was_said() -> None:
    assert (await ask(Turn("user", "Hi there"), model="echo")).text == "You said: Hi there"


async def test_other_scripted_models_do_not_exist() -> None:
    with pytest.raises(PermanentProviderError) as raised:
        await ask(Turn("user", "Hi"), model="gpt-9")
    assert raised.value.code == "model_not_found"


async def test_asked_to_compact_it_writes_a_summary_and_plays_no_script() -> None:
    removed = [Entry("a", "user", '{"script": [{"say": "x"}]}'), Entry("b", "user", "Fix src/a.py")]
    answer = await ask(*summary_request(removed, window=8192))
    assert answer.text.startswith("## Goal")
    assert "## Critical Context" in answer.text
    assert "src/a.py" in answer.text
