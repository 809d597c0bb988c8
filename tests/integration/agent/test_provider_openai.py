"""Model calls over real HTTP through pydantic-ai, against the OpenAI-compatible stub."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from decimal import Decimal

import pytest

from holdfast.agent import pydantic_clients
from holdfast.agent.conversation import ModelAnswer, ToolCall, Turn, Usage
from holdfast.agent.errors import (
    UNREACHABLE,
    ContextOverflow,
    PassingProviderError,
    PermanentProviderError,
    ProviderError,
)
from holdfast.agent.providers import close_clients, complete, resolve
from holdfast.agent.routes import Route
from holdfast.agent.tools.specs import READ_FILE, SHELL
from holdfast.settings.config import Config
from tests.stub.openai_stub import OpenAIStub

DEADLINE_S = 120.0


@pytest.fixture(scope="module")
def shared_stub() -> Iterator[OpenAIStub]:
    with OpenAIStub() as stub:
        yield stub


@pytest.fixture
async def stub(shared_stub: OpenAIStub) -> AsyncIterator[OpenAIStub]:
    shared_stub.requests.clear()
    yield shared_stub
    await close_clients()


def route_to(stub: OpenAIStub, model: str = "stub-1") -> Route:
    config = Config.model_validate(
        {"providers": {"local": {"driver": "openai", "base_url": stub.base_url}}}
    )
    return resolve(config, f"local:{model}")


async def ask(
    stub: OpenAIStub,
    *turns: Turn,
    model: str = "stub-1",
    pieces: list[str] | None = None,
    max_output_tokens: int | None = None,
) -> ModelAnswer:
    return await complete(
        route_to(stub, model),
        turns or (Turn("user", "Hi"),),
        [SHELL, READ_FILE],
        on_text=(pieces if pieces is not None else []).append,
        max_output_tokens=max_output_tokens,
    )


async def test_text_arrives_in_the_pieces_the_provider_sent(stub: OpenAIStub) -> None:
    stub.play({"say": "Hello there, operator!", "chunks": 4})
    pieces: list[str] = []
    answer = await ask(stub, pieces=pieces)
    assert answer.text == "Hello there, operator!" == "".join(pieces)
    assert len(pieces) == 4
    assert (answer.finish_reason, answer.provider, answer.model) == ("stop", "local", "stub-1")


async def test_the_headers_of_a_provider_are_sent(stub: OpenAIStub) -> None:
    provider = {"driver": "openai", "base_url": stub.base_url, "headers": {"X-Team": "search"}}
    route = resolve(Config.model_validate({"providers": {"local": provider}}), "local:stub-1")
    stub.play({"say": "Hello"})
    await complete(route, [Turn("user", "Hi")], [], on_text=lambda _text: None)
    [request] = stub.requests
    assert request.headers["x-team"] == "search"
    assert "search" not in repr(route)


async def test_an_async_listener_is_awaited(stub: OpenAIStub) -> None:
    heard: list[str] = []

    async def listen(text: str) -> None:
        await asyncio.sleep(0)
        heard.append(text)

    stub.play({"say": "abcd", "chunks": 2})
    await complete(route_to(stub), [Turn("user", "Hi")], [], on_text=listen)
    assert heard == ["ab", "cd"]


async def test_tool_calls_are_put_together_from_their_pieces(stub: OpenAIStub) -> None:
    stub.play(
        {
            "say": "Looking.",
            "calls": [
                {"call": "shell", "arguments": {"command": "ls", "timeout_s": 5}},
                {"call": "read_file", "arguments": {"path": "a.txt"}},
            ],
        }
    )
    answer = await ask(stub)
    assert [(call.name, call.arguments) for call in answer.tool_calls] == [
        ("shell", {"command": "ls", "timeout_s": 5}),
        ("read_file", {"path": "a.txt"}),
    ]
    assert answer.finish_reason in {"tool_call", "tool_calls"}


async def test_the_request_holds_the_conversation_and_the_tools_as_they_are(
    stub: OpenAIStub,
) -> None:
    stub.play({"say": "done"})
    call = ToolCall("call_1", "shell", {"command": "ls"})
    await ask(
        stub,
        Turn("system", "Be brief."),
        Turn("user", "List."),
        Turn("assistant", "Sure.", (call,)),
        Turn("tool", "a.txt", tool_call_id="call_1", tool_name="shell"),
        Turn("system", "Prompts were updated."),
        max_output_tokens=77,
    )
    body = stub.calls[0].body
    shown = [(message["role"], message.get("content")) for message in body["messages"]]
    assert shown == [
        ("system", "Be brief."),
        ("user", "List."),
        ("assistant", "Sure."),
        ("tool", "a.txt"),
        ("system", "Prompts were updated."),
    ]
    assert body["messages"][2]["tool_calls"][0]["id"] == "call_1"
    assert body["tools"][0]["function"]["parameters"] == SHELL.parameters
    assert body["max_tokens"] == 77
    assert body["stream"] is True


async def test_usage_is_what_the_provider_reported_and_the_cost_follows(stub: OpenAIStub) -> None:
    usage = {"input_tokens": 1000, "output_tokens": 100, "cache_read_tokens": 400}
    stub.play({"say": "ok", "usage": {**usage, "reasoning_tokens": 7}})
    answer = await ask(stub, model="gpt-4o")
    assert answer.usage == Usage(1000, 100, 400, 0, 7)
    # 600 at $2.50, 400 cached at $1.25 and 100 at $10 a million.
    assert answer.cost_usd == Decimal("0.003")
    assert (answer.cost_status, answer.cost_source) == ("estimated", "genai-prices")


async def test_the_cost_of_an_unknown_model_is_unknown_and_not_zero(stub: OpenAIStub) -> None:
    stub.play({"say": "ok"})
    answer = await ask(stub)
    assert (answer.cost_usd, answer.cost_status) == (None, "unknown")


async def test_broken_tool_arguments_become_a_note_and_no_crash(stub: OpenAIStub) -> None:
    stub.play(
        {
            "calls": [
                {"call": "shell", "arguments": '{"command": '},
                {"call": "shell", "arguments": "[1]"},
            ]
        }
    )
    first, second = (await ask(stub)).tool_calls
    assert first.arguments == second.arguments == {}
    assert "not valid JSON" in (first.invalid_arguments or "")
    assert "not a JSON object" in (second.invalid_arguments or "")


async def test_ids_that_a_server_uses_twice_are_made_unique(stub: OpenAIStub) -> None:
    element = {"call": "shell", "arguments": {"command": "ls"}}
    stub.play(element, element)
    first = (await ask(stub)).tool_calls[0]
    turns = [
        Turn("user", "Hi"),
        Turn("assistant", "", (first,)),
        Turn("tool", "x", tool_call_id=first.id, tool_name="shell"),
    ]
    second = (await ask(stub, *turns)).tool_calls[0]
    assert second.id != first.id


@pytest.mark.req("K-041")
async def test_cancelling_closes_the_connection_to_the_provider(stub: OpenAIStub) -> None:
    stub.play({"deltas": 10_000, "every_ms": 5})
    speaking = asyncio.Event()
    task = asyncio.create_task(
        complete(route_to(stub), [Turn("user", "Hi")], [], on_text=lambda _: speaking.set())
    )
    await asyncio.wait_for(speaking.wait(), DEADLINE_S)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    request = stub.calls[0]
    assert await asyncio.to_thread(request.abandoned.wait, DEADLINE_S)
    assert request.pieces_sent < 10_000


@pytest.mark.req("K-041")
async def test_cancelling_while_nothing_has_come_yet_closes_the_connection(
    stub: OpenAIStub,
) -> None:
    stub.play({"hang_s": 600})
    task = asyncio.create_task(ask(stub))
    assert await asyncio.to_thread(stub.wait_for_requests, 1)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await asyncio.to_thread(stub.calls[0].abandoned.wait, DEADLINE_S)


@pytest.mark.parametrize(
    ("element", "kind", "code"),
    [
        ({"error": 400}, PermanentProviderError, "bad_request"),
        ({"error": 401}, PermanentProviderError, "authentication_failed"),
        ({"error": 403}, PermanentProviderError, "authentication_failed"),
        ({"error": 404}, PermanentProviderError, "model_not_found"),
        ({"error": 429}, PassingProviderError, "rate_limited"),
        ({"error": 500}, PassingProviderError, "provider_error"),
        ({"error": 503}, PassingProviderError, "provider_error"),
        ({"error": "connection"}, PassingProviderError, "provider_unreachable"),
        ({"error": "overflow"}, ContextOverflow, "context_overflow"),
        ({"say": "Half an ans", "drop": True}, PassingProviderError, "stream_dropped"),
        ({"say": "Some", "garbage": True}, PassingProviderError, "provider_error"),
    ],
)
async def test_each_kind_of_trouble_says_what_to_do_and_is_asked_for_once(
    stub: OpenAIStub, element: dict[str, object], kind: type[ProviderError], code: str
) -> None:
    stub.play(element)
    with pytest.raises(ProviderError) as raised:
        await ask(stub)
    assert (type(raised.value), raised.value.code) == (kind, code)
    # The SDK's own retries are off: retrying is the workflow's decision.
    assert len(stub.calls) == 1


async def test_a_provider_that_hangs_is_left_after_a_while_and_may_be_asked_again(
    stub: OpenAIStub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pydantic_clients, "READ_TIMEOUT_S", 0.5)
    stub.play({"hang_s": 600}, {"say": "I was away."})
    with pytest.raises(PassingProviderError) as raised:
        await ask(stub)
    assert raised.value.code == "provider_unreachable"
    assert await asyncio.to_thread(stub.calls[0].abandoned.wait, DEADLINE_S)
    monkeypatch.undo()
    await close_clients()
    assert (await ask(stub)).text == "I was away."


async def test_a_rate_limit_passes_on_how_long_to_wait(stub: OpenAIStub) -> None:
    stub.play({"error": 429})
    with pytest.raises(PassingProviderError) as raised:
        await ask(stub)
    assert raised.value.retry_after_s == 1


@pytest.mark.req("K-135")
async def test_a_provider_that_does_not_listen_is_unreachable_in_these_words() -> None:
    config = Config.model_validate(
        # The discard port: nothing listens there on a test machine.
        {"providers": {"gone": {"driver": "openai", "base_url": "http://127.0.0.1:9/v1"}}}
    )
    with pytest.raises(PassingProviderError) as raised:
        await complete(
            resolve(config, "gone:any"), [Turn("user", "Hi")], [], on_text=lambda _: None
        )
    await close_clients()
    assert raised.value.code == "provider_unreachable"
    assert raised.value.message == UNREACHABLE
    assert UNREACHABLE == "Provider unreachable. Try again or check provider config."


async def test_what_the_listener_raises_passes_through_unchanged(stub: OpenAIStub) -> None:
    def refuse(_: str) -> None:
        raise ValueError("the disk is full")

    stub.play({"say": "Hello", "chunks": 2})
    with pytest.raises(ValueError, match="the disk is full"):
        await complete(route_to(stub), [Turn("user", "Hi")], [], on_text=refuse)


async def test_calls_on_one_route_share_a_connection(stub: OpenAIStub) -> None:
    before = stub.connections
    for _ in range(3):
        await ask(stub)
    assert stub.connections - before == 1


async def test_a_script_in_the_message_is_played_step_by_step(stub: OpenAIStub) -> None:
    question = Turn(
        "user", '{"script": [{"call": "shell", "arguments": {"command": "ls"}}, {"say": "Done."}]}'
    )
    first = await ask(stub, question)
    assert [call.name for call in first.tool_calls] == ["shell"]
    second = await ask(
        stub,
        question,
        Turn("assistant", first.text, first.tool_calls),
        Turn("tool", "a.txt", tool_call_id=first.tool_calls[0].id, tool_name="shell"),
    )
    assert second.text == "Done."


async def test_a_missing_key_is_told_before_anything_is_sent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    config = Config.model_validate({"providers": {"openai": {"driver": "openai"}}})
    with pytest.raises(PermanentProviderError, match="OPENAI_API_KEY") as raised:
        await complete(
            resolve(config, "openai:gpt-4o"), [Turn("user", "Hi")], [], on_text=lambda _: None
        )
    await close_clients()
    assert raised.value.code == "api_key_missing"
