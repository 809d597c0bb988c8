"""The same conversation through the Anthropic, Google and Ollama drivers, over real HTTP."""

from __future__ import annotations

import asyncio
from decimal import Decimal

import pytest

from holdfast.agent.conversation import ModelAnswer, ToolCall, Turn, Usage
from holdfast.agent.errors import ContextOverflow, PassingProviderError, PermanentProviderError
from holdfast.agent.providers import close_clients, complete, resolve
from holdfast.agent.tools.specs import SHELL
from holdfast.settings.config import Config
from tests.stub.anthropic_stub import AnthropicStub
from tests.stub.google_stub import GoogleStub
from tests.stub.openai_stub import OpenAIStub
from tests.stub.scripted_stub import ScriptedStub

DEADLINE_S = 120.0
# Google's SDK has an escape sequence that Python warns about when it compiles the file.
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")

CALL = ToolCall("call_1", "shell", {"command": "ls"})
CONVERSATION = (
    Turn("system", "Be brief."),
    Turn("user", "List."),
    Turn("assistant", "Sure.", (CALL,)),
    Turn("tool", "a.txt", tool_call_id="call_1", tool_name="shell"),
    Turn("system", "Prompts were updated."),
)


async def ask(
    stub: ScriptedStub,
    driver: str,
    base_url: str,
    *,
    model: str,
    turns: tuple[Turn, ...] = CONVERSATION,
    pieces: list[str] | None = None,
) -> ModelAnswer:
    provider = {"driver": driver, "base_url": base_url}
    route = resolve(Config.model_validate({"providers": {"p": provider}}), f"p:{model}")
    try:
        heard = pieces if pieces is not None else []
        return await complete(route, turns, [SHELL], on_text=heard.append)
    finally:
        await close_clients()


async def test_anthropic_streams_text_tool_calls_and_usage() -> None:
    pieces: list[str] = []
    with AnthropicStub() as stub:
        stub.play(
            {
                "say": "Listing now.",
                "chunks": 3,
                "call": "shell",
                "arguments": {"command": "ls -a"},
                "usage": {"input_tokens": 1000, "output_tokens": 20, "cache_read_tokens": 600},
            }
        )
        answer = await ask(
            stub, "anthropic", stub.base_url, model="claude-sonnet-4-5", pieces=pieces
        )
        body = stub.calls[0].body
    assert (answer.text, len(pieces)) == ("Listing now.", 3)
    assert [(call.name, call.arguments) for call in answer.tool_calls] == [
        ("shell", {"command": "ls -a"})
    ]
    assert answer.usage == Usage(1000, 20, 600)
    # 400 at $3, 600 cached at $0.30 and 20 at $15 a million.
    assert answer.cost_usd == Decimal("0.00168")
    assert [message["role"] for message in body["messages"]][:3] == ["user", "assistant", "user"]
    assert body["system"][0]["text"] == "Be brief."
    assert "cache_control" in str(body["tools"])
    assert "Prompts were updated." in str(body["messages"])


@pytest.mark.parametrize(
    ("element", "kind"),
    [
        ({"error": 401}, PermanentProviderError),
        ({"error": 529}, PassingProviderError),
        ({"error": "overflow"}, ContextOverflow),
        ({"say": "Half", "drop": True}, PassingProviderError),
    ],
)
async def test_anthropic_trouble_says_what_to_do_and_is_asked_for_once(
    element: dict[str, object], kind: type[Exception]
) -> None:
    with AnthropicStub() as stub:
        stub.play(element)
        with pytest.raises(kind):
            await ask(stub, "anthropic", stub.base_url, model="claude-sonnet-4-5")
        assert len(stub.calls) == 1


@pytest.mark.req("K-041")
async def test_cancelling_closes_the_connection_to_anthropic() -> None:
    with AnthropicStub() as stub:
        stub.play({"deltas": 10_000, "every_ms": 5})
        task = asyncio.create_task(ask(stub, "anthropic", stub.base_url, model="claude-sonnet-4-5"))
        assert await asyncio.to_thread(stub.wait_for_requests, 1)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert await asyncio.to_thread(stub.calls[0].done.wait, DEADLINE_S)
        assert not stub.calls[0].finished


async def test_google_streams_text_and_tool_calls() -> None:
    pieces: list[str] = []
    with GoogleStub() as stub:
        stub.play({"say": "Listing", "chunks": 2, "call": "shell", "arguments": {"command": "ls"}})
        answer = await ask(stub, "google", stub.base_url, model="gemini-2.5-pro", pieces=pieces)
        assert len(stub.calls) == 1
    assert (answer.text, len(pieces)) == ("Listing", 2)
    assert [(call.name, call.arguments) for call in answer.tool_calls] == [
        ("shell", {"command": "ls"})
    ]
    assert answer.tool_calls[0].id
    assert answer.usage == Usage(10, 5)


@pytest.mark.parametrize(
    ("status", "kind"), [(400, PermanentProviderError), (503, PassingProviderError)]
)
async def test_google_trouble_says_what_to_do_and_is_asked_for_once(
    status: int, kind: type[Exception]
) -> None:
    with GoogleStub() as stub:
        stub.play({"error": status})
        with pytest.raises(kind):
            await ask(stub, "google", stub.base_url, model="gemini-2.5-pro")
        assert len(stub.calls) == 1


async def test_ollama_is_asked_without_a_key_and_costs_nobody_knows_what() -> None:
    with OpenAIStub() as stub:
        stub.play({"say": "Hello"})
        address = stub.base_url.removesuffix("/v1")
        answer = await ask(stub, "ollama", address, model="qwen3:8b")
        assert stub.calls[0].path == "/v1/chat/completions"
        assert stub.calls[0].body["model"] == "qwen3:8b"
    assert (answer.text, answer.cost_status) == ("Hello", "unknown")
