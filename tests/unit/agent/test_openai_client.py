"""Our OpenAI client sends byte for byte what the SDK's own client sends."""

from __future__ import annotations

import asyncio
import json
import time
from typing import Any, cast

import httpx2
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from openai import AsyncOpenAI
from pydantic_ai.direct import model_request_stream
from pydantic_ai.exceptions import ModelHTTPError
from pydantic_ai.messages import (
    BinaryContent,
    ImageUrl,
    ModelMessage,
    ModelRequest,
    ModelResponse,
    SystemPromptPart,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.models import ModelRequestParameters
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.profiles.openai import OpenAIModelProfile
from pydantic_ai.providers.ollama import OllamaProvider
from pydantic_ai.providers.openai import OpenAIProvider
from pydantic_ai.settings import ModelSettings
from pydantic_ai.tools import ToolDefinition

from holdfast.agent.openai_client import PlainOpenAI

URL = "http://127.0.0.1:9/v1"
CALLS = 150

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=12) | st.just('é"\\\n<system>')
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(texts, inner, max_size=2),
    max_leaves=4,
)
arguments = st.dictionaries(texts, values | texts, max_size=3)
ids = st.sampled_from(["a", "b", "call_1"])
images = st.builds(ImageUrl, st.just("https://example.test/a.png")) | st.just(
    BinaryContent(b"\x89PNG", media_type="image/png")
)
prompts = st.builds(UserPromptPart, texts | st.lists(texts | images, min_size=1, max_size=3))
requests = st.builds(
    ModelRequest,
    st.lists(
        prompts
        | st.builds(SystemPromptPart, texts)
        | st.builds(ToolReturnPart, st.just("shell"), texts | arguments, ids),
        min_size=1,
        max_size=3,
    ),
)
answers = st.builds(
    ModelResponse,
    st.lists(
        st.builds(TextPart, texts)
        | st.builds(ThinkingPart, texts, id=st.none() | st.just("reasoning_content"))
        | st.builds(ToolCallPart, st.just("shell"), arguments, ids),
        min_size=1,
        max_size=3,
    ),
)
tools = st.lists(
    st.builds(
        ToolDefinition,
        name=st.sampled_from(["shell", "read_file"]),
        description=st.none() | texts,
        parameters_json_schema=st.just(
            {"type": "object", "properties": {"type": {"enum": ["é", None, 1.5]}}}
        ),
        strict=st.sampled_from([False, None]),
    ),
    max_size=2,
)
model_settings = st.fixed_dictionaries(
    {},
    optional={
        "max_tokens": st.integers(1, 9),
        "temperature": st.just(0.5),
        "parallel_tool_calls": st.booleans(),
        "thinking": st.sampled_from([False, "low"]),
        "extra_body": st.just({"top_k": 3, "model": "other"}),
        "stop_sequences": st.just(["\n"]),
    },
)
providers = st.sampled_from([OpenAIProvider, OllamaProvider])
models = st.sampled_from(["gpt-4o", "o1-mini", "gpt-5", "deepseek-r1", "qwen3", "mistral", "x"])


def request_of(kind: type[AsyncOpenAI], asked: dict[str, Any]) -> httpx2.Request:
    """What a client of this kind sends for a request."""
    sent: list[httpx2.Request] = []

    def keep(request: httpx2.Request) -> httpx2.Response:
        sent.append(request)
        return httpx2.Response(400, json={"error": {"message": "seen"}})

    async def ask() -> None:
        async with httpx2.AsyncClient(transport=httpx2.MockTransport(keep)) as http:
            client = kind(base_url=URL, api_key="k", max_retries=0, http_client=http)
            model = OpenAIChatModel(
                asked["model"],
                provider=asked["provider"](openai_client=client),
                profile=cast("OpenAIModelProfile", asked["profile"]),
            )
            with pytest.raises(ModelHTTPError, match="seen"):
                async with model_request_stream(
                    model,
                    asked["messages"],
                    model_settings=cast("ModelSettings", asked["settings"]),
                    model_request_parameters=ModelRequestParameters(function_tools=asked["tools"]),
                ):
                    raise AssertionError("nobody answered")

    asyncio.run(ask())
    [request] = sent
    return request


conversations = st.fixed_dictionaries(
    {
        "messages": st.lists(requests | answers, max_size=5).flatmap(
            lambda before: requests.map(lambda last: [*before, last])
        ),
        "tools": tools,
        "settings": model_settings,
        "model": models,
        "provider": providers,
        "profile": st.sampled_from([{}, {"openai_chat_supports_max_completion_tokens": False}]),
    }
)


@pytest.mark.filterwarnings("ignore::UserWarning")
@settings(derandomize=True, max_examples=80, deadline=None)
@given(conversations)
def test_the_body_is_byte_for_byte_the_one_of_the_sdk(asked: dict[str, Any]) -> None:
    theirs, ours = request_of(AsyncOpenAI, asked), request_of(PlainOpenAI, asked)
    assert ours.content == theirs.content
    assert ours.headers == theirs.headers
    assert ours.url == theirs.url
    assert json.loads(ours.content)["messages"]


def test_a_long_conversation_costs_far_less_than_with_the_sdk() -> None:
    messages: list[ModelMessage] = [ModelRequest([UserPromptPart("go")])]
    for number in range(CALLS):
        messages.append(ModelResponse([ToolCallPart("shell", {"n": number}, f"c{number}")]))
        messages.append(ModelRequest([ToolReturnPart("shell", "done", f"c{number}")]))
    asked: dict[str, Any] = {
        "messages": messages,
        "tools": [],
        "settings": {},
        "model": "x",
        "provider": OpenAIProvider,
        "profile": {},
    }
    request_of(PlainOpenAI, asked)
    ours = min(_cpu_s(PlainOpenAI, asked) for _ in range(5))
    theirs = min(_cpu_s(AsyncOpenAI, asked) for _ in range(3))
    assert ours < theirs / 2


def _cpu_s(kind: type[AsyncOpenAI], asked: dict[str, Any]) -> float:
    began = time.thread_time()
    request_of(kind, asked)
    return time.thread_time() - began
