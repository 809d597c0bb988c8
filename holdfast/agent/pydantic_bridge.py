"""Between our turns and pydantic-ai's model layer. Importing this takes over a second."""

from __future__ import annotations

import inspect
import json
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, cast

from pydantic_ai.direct import model_request_stream
from pydantic_ai.messages import (
    ModelMessage,
    ModelRequest,
    ModelRequestPart,
    ModelResponse,
    ModelResponsePart,
    PartDeltaEvent,
    PartStartEvent,
    SystemPromptPart,
    TextPart,
    TextPartDelta,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.models import ModelRequestParameters, StreamedResponse
from pydantic_ai.settings import ModelSettings
from pydantic_ai.tools import ToolDefinition

from holdfast.agent.conversation import ModelAnswer, ToolCall, Turn, Usage
from holdfast.agent.errors import PassingProviderError
from holdfast.agent.pydantic_clients import clients
from holdfast.agent.pydantic_errors import explain
from holdfast.agent.routes import Route
from holdfast.agent.text import Joiner, clean, clean_json
from holdfast.agent.tools.tool_spec import ToolSpec

_SYSTEM_INSIDE = frozenset({"openai", "ollama"})
# Breakpoints after the tools, the prompt and the newest message; other providers cache unasked.
_CACHE_SETTINGS: dict[str, Any] = {
    "anthropic_cache_instructions": True,
    "anthropic_cache_tool_definitions": True,
    "anthropic_cache_messages": True,
}


async def stream(
    route: Route,
    turns: Sequence[Turn],
    tools: Sequence[ToolSpec],
    *,
    on_text: Callable[[str], Awaitable[None] | None],
    max_output_tokens: int | None,
) -> ModelAnswer:
    """One request; cancelling the task closes the provider's connection at once."""
    reader = _Reader(on_text)
    request = model_request_stream(
        clients().model(route),
        messages_from(turns, system_inside=route.driver in _SYSTEM_INSIDE),
        model_settings=_settings(route, max_output_tokens),
        model_request_parameters=ModelRequestParameters(
            function_tools=[_definition(spec) for spec in tools], allow_text_output=True
        ),
    )
    try:
        async with request as response:
            await reader.read(response)
            answer = _answer(route, response)
    except Exception as error:
        # Whatever a provider's SDK, transport or garbage raises, the caller needs to know one
        # thing: whether to try again.
        if error is reader.consumer_error:
            raise
        raise explain(error, started=reader.started) from error
    if answer.finish_reason is None and not answer.usage.output_tokens:
        raise PassingProviderError("stream_dropped", "The answer broke off without an end.")
    return answer


class _Reader:
    """Passes text on as it comes, and knows whose exception is whose."""

    def __init__(self, on_text: Callable[[str], Awaitable[None] | None]) -> None:
        self.on_text = on_text
        self.joiner = Joiner()
        self.started = False
        self.consumer_error: Exception | None = None

    async def read(self, response: StreamedResponse) -> None:
        async for event in response:
            self.started = True
            # The first piece of a text comes with the start of its part, not as a delta.
            if isinstance(event, PartStartEvent) and isinstance(event.part, TextPart):
                await self._tell(event.part.content)
            elif isinstance(event, PartDeltaEvent) and isinstance(event.delta, TextPartDelta):
                await self._tell(event.delta.content_delta)

    async def _tell(self, piece: str) -> None:
        text = self.joiner.add(piece)
        if not text:
            return
        try:
            waiting = self.on_text(text)
            if inspect.isawaitable(waiting):
                await waiting
        except Exception as error:
            self.consumer_error = error
            raise


def messages_from(turns: Sequence[Turn], *, system_inside: bool) -> list[ModelMessage]:
    """Our turns as pydantic-ai's messages: everything between two answers is one request.

    Without `system_inside` a later system turn becomes a marked user text: such providers would
    move it to the front, out of its place and through the cached prompt.
    """
    messages: list[ModelMessage] = []
    pending: list[ModelRequestPart] = []
    opening = True
    for turn in turns:
        opening = opening and turn.role == "system"
        if turn.role == "system" and not opening and not system_inside:
            pending.append(UserPromptPart(f"<system>\n{turn.text}\n</system>"))
            continue
        if turn.role != "assistant":
            pending.append(_request_part(turn))
            continue
        if pending:
            messages.append(ModelRequest(parts=pending))
            pending = []
        parts: list[ModelResponsePart] = [TextPart(turn.text)] if turn.text else []
        parts += [ToolCallPart(call.name, call.arguments, call.id) for call in turn.tool_calls]
        messages.append(ModelResponse(parts=parts))
    if pending:
        messages.append(ModelRequest(parts=pending))
    return messages


def _request_part(turn: Turn) -> ModelRequestPart:
    if turn.role == "system":
        return SystemPromptPart(turn.text)
    if turn.role == "tool":
        return ToolReturnPart(turn.tool_name or "unknown", turn.text, turn.tool_call_id or "")
    return UserPromptPart(turn.text)


def _definition(spec: ToolSpec) -> ToolDefinition:
    return ToolDefinition(
        name=spec.name,
        description=spec.description,
        parameters_json_schema=spec.parameters,
        # Strict mode would rewrite the schema and make optional arguments required.
        strict=False,
    )


def _settings(route: Route, max_output_tokens: int | None) -> ModelSettings:
    settings = dict(_CACHE_SETTINGS) if route.driver == "anthropic" else {}
    if max_output_tokens is not None:
        settings["max_tokens"] = max_output_tokens
    return cast(ModelSettings, settings)


def _answer(route: Route, response: StreamedResponse) -> ModelAnswer:
    finished = response.get()
    usage = finished.usage
    return ModelAnswer(
        text=clean("".join(p.content for p in finished.parts if isinstance(p, TextPart))),
        tool_calls=tuple(_call(p) for p in finished.parts if isinstance(p, ToolCallPart)),
        usage=Usage(
            input_tokens=usage.input_tokens,
            output_tokens=usage.output_tokens,
            cache_read_tokens=usage.cache_read_tokens,
            cache_write_tokens=usage.cache_write_tokens,
            reasoning_tokens=usage.details.get("reasoning_tokens", 0),
        ),
        finish_reason=finished.finish_reason,
        model=finished.model_name or route.model,
        provider=route.provider,
    )


def _call(part: ToolCallPart) -> ToolCall:
    arguments: Any = part.args
    if arguments is None or arguments == "":
        arguments = {}
    if isinstance(arguments, str):
        try:
            arguments = json.loads(arguments)
        except (ValueError, RecursionError) as error:
            note = f"not valid JSON ({error})"
            return ToolCall(part.tool_call_id, part.tool_name, {}, note)
    if not isinstance(arguments, dict):
        return ToolCall(part.tool_call_id, part.tool_name, {}, "they are not a JSON object")
    return ToolCall(part.tool_call_id, clean(part.tool_name), clean_json(arguments))
