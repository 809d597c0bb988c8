"""An OpenAI-compatible server for tests: it plays what a test queued or a message scripts.

`stub.play({"say": "Hello", "chunks": 3}, {"error": 429})` queues one element per request, in the
language of `holdfast.agent.script`; without a queue the script in the last user message is
played, and without that it answers `You said: …`.
"""

from __future__ import annotations

import asyncio
import json
from typing import Any

from holdfast.agent.conversation import ToolCall, Turn
from holdfast.agent.script import Step
from holdfast.agent.tokens import estimate, estimate_turns
from tests.stub.embeddings import Embeddings
from tests.stub.http_stub import Recorded, Reply
from tests.stub.scripted_stub import ScriptedStub

CONTEXT_ERROR = "This model's maximum context length is 8192 tokens. Please reduce the length."
CREATED = 1_700_000_000


class OpenAIStub(ScriptedStub):
    """`POST /v1/chat/completions`, streamed or not, `/v1/embeddings`, and `GET /v1/models`."""

    def __init__(self) -> None:
        super().__init__()
        self.embeddings = Embeddings()

    @property
    def base_url(self) -> str:
        """What `base_url` of a provider must be."""
        return f"http://127.0.0.1:{self.port}/v1"

    async def handle(self, recorded: Recorded, reply: Reply) -> None:
        """Answer one request as OpenAI would."""
        if recorded.path.endswith("/models"):
            await reply.json(200, {"object": "list", "data": [{"id": "stub-1", "object": "model"}]})
        elif recorded.path.endswith("/chat/completions"):
            await self._complete(recorded.body, reply)
        elif recorded.path.endswith("/embeddings"):
            await self.embeddings.answer(recorded.body, reply)
        else:
            await reply.json(404, _error("no such path", "not_found", None))

    async def _complete(self, body: dict[str, Any], reply: Reply) -> None:
        turns = turns_from(body["messages"])
        step = self.next_step(turns)
        if step.hang_s:
            await asyncio.sleep(step.hang_s)
        if await self._fails(step, turns, reply):
            return
        if not body.get("stream"):
            await reply.json(200, _whole(body, step, turns))
            return
        await _stream(body, step, turns, reply)

    async def _fails(self, step: Step, turns: list[Turn], reply: Reply) -> bool:
        if self.overflows(step, turns):
            code = "context_length_exceeded"
            await reply.json(400, _error(CONTEXT_ERROR, "invalid_request_error", code))
            return True
        if step.error is None or self.used_up(step):
            return False
        if not isinstance(step.error, int):
            reply.drop()
        headers = {"retry_after": "1"} if step.error == 429 else {}
        await reply.json(int(step.error), _error("scripted", "scripted_error", None), **headers)
        return True


def turns_from(messages: list[dict[str, Any]]) -> list[Turn]:
    """The request's messages as our turns."""
    roles = {"developer": "system"}
    turns = []
    for message in messages:
        calls = tuple(
            ToolCall(call["id"], call["function"]["name"], {})
            for call in message.get("tool_calls") or []
        )
        role: Any = roles.get(message["role"], message["role"])
        text = _text(message.get("content"))
        turns.append(Turn(role, text, calls, message.get("tool_call_id")))
    return turns


def _text(content: Any) -> str:
    if isinstance(content, list):
        return "".join(part.get("text", "") for part in content)
    return content or ""


async def _stream(body: dict[str, Any], step: Step, turns: list[Turn], reply: Reply) -> None:
    await reply.open_stream()
    await reply.send(_chunk(body, {"role": "assistant", "content": ""}))
    for piece in step.pieces():
        if step.every_ms:
            await asyncio.sleep(step.every_ms / 1000)
        await reply.send(_chunk(body, {"content": piece}))
    if step.drop:
        reply.drop()
    if step.garbage:
        await reply.send("data: {this is not json\n\n")
    for index, call in enumerate(_calls(step)):
        await _stream_call(body, index, call, reply)
    await reply.send(_chunk(body, {}, finish=_finish(step)))
    if body.get("stream_options", {}).get("include_usage"):
        await reply.send(_event({**_frame(body), "choices": [], "usage": _usage(step, turns)}))
    await reply.send("data: [DONE]\n\n")
    await reply.close_stream()


async def _stream_call(
    body: dict[str, Any], index: int, call: dict[str, Any], reply: Reply
) -> None:
    """The name first and then the arguments in two halves, as OpenAI does."""
    name, arguments = call["function"]["name"], call["function"]["arguments"]
    half = len(arguments) // 2
    opening = {**call, "index": index, "function": {"name": name, "arguments": ""}}
    await reply.send(_chunk(body, {"tool_calls": [opening]}))
    for part in (arguments[:half], arguments[half:]):
        piece = {"index": index, "function": {"arguments": part}}
        await reply.send(_chunk(body, {"tool_calls": [piece]}))


def _whole(body: dict[str, Any], step: Step, turns: list[Turn]) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": "".join(step.pieces()) or None}
    if step.calls:
        message["tool_calls"] = _calls(step)
    choice = {"index": 0, "message": message, "finish_reason": _finish(step)}
    frame = {**_frame(body), "object": "chat.completion"}
    return {**frame, "choices": [choice], "usage": _usage(step, turns)}


def _calls(step: Step) -> list[dict[str, Any]]:
    return [
        {
            "id": call.id,
            "type": "function",
            "function": {
                "name": name,
                # A text is sent as it is, so that tests can send broken arguments.
                "arguments": raw if isinstance(raw, str) else json.dumps(raw),
            },
        }
        for call, (name, raw) in zip(step.tool_calls(), step.calls, strict=True)
    ]


def _usage(step: Step, turns: list[Turn]) -> dict[str, Any]:
    used = step.usage
    read = used.input_tokens if used else estimate_turns(turns)
    written = used.output_tokens if used else estimate("".join(step.pieces()))
    return {
        "prompt_tokens": read,
        "completion_tokens": written,
        "total_tokens": read + written,
        "prompt_tokens_details": {"cached_tokens": used.cache_read_tokens if used else 0},
        "completion_tokens_details": {"reasoning_tokens": used.reasoning_tokens if used else 0},
    }


def _finish(step: Step) -> str:
    return "tool_calls" if step.calls else "stop"


def _frame(body: dict[str, Any]) -> dict[str, Any]:
    kind = "chat.completion.chunk"
    return {"id": "chatcmpl-stub", "object": kind, "created": CREATED, "model": body["model"]}


def _chunk(body: dict[str, Any], delta: dict[str, Any], *, finish: str | None = None) -> str:
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    return _event({**_frame(body), "choices": [choice]})


def _event(value: dict[str, Any]) -> str:
    return f"data: {json.dumps(value)}\n\n"


def _error(message: str, kind: str, code: str | None) -> dict[str, Any]:
    return {"error": {"message": message, "type": kind, "code": code}}
