"""An Anthropic-compatible server for tests, in the same script language as the OpenAI one."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from holdfast.agent.conversation import Turn, Usage
from holdfast.agent.script import Step
from tests.stub.http_stub import Recorded, Reply
from tests.stub.scripted_stub import ScriptedStub

TOO_LONG = "prompt is too long: 200001 tokens > 200000 maximum"


class AnthropicStub(ScriptedStub):
    """`POST /v1/messages`, streamed."""

    @property
    def base_url(self) -> str:
        """What `base_url` of a provider must be."""
        return f"http://127.0.0.1:{self.port}"

    async def handle(self, recorded: Recorded, reply: Reply) -> None:
        """Answer one request as Anthropic would."""
        turns = [Turn(m["role"], json.dumps(m["content"])) for m in recorded.body["messages"]]
        step = self.next_step(turns)
        if self.overflows(step, turns):
            await reply.json(400, _error("invalid_request_error", TOO_LONG))
        elif isinstance(step.error, int):
            await reply.json(step.error, _error("scripted_error", "scripted"))
        else:
            await _stream(recorded.body, step, reply)


async def _stream(body: dict[str, Any], step: Step, reply: Reply) -> None:
    used = step.usage or Usage(10, 5)
    message = {
        "id": "msg_stub",
        "type": "message",
        "role": "assistant",
        "model": body["model"],
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": {
            "input_tokens": used.input_tokens - used.cache_read_tokens - used.cache_write_tokens,
            "output_tokens": 1,
            "cache_read_input_tokens": used.cache_read_tokens,
            "cache_creation_input_tokens": used.cache_write_tokens,
        },
    }
    await reply.open_stream()
    await reply.send(_event("message_start", message=message))
    for index, (block, deltas) in enumerate(_blocks(step)):
        await reply.send(_event("content_block_start", index=index, content_block=block))
        for delta in deltas:
            if step.every_ms:
                await asyncio.sleep(step.every_ms / 1000)
            await reply.send(_event("content_block_delta", index=index, delta=delta))
        await reply.send(_event("content_block_stop", index=index))
    if step.drop:
        reply.drop()
    stop = {"stop_reason": "tool_use" if step.calls else "end_turn", "stop_sequence": None}
    usage = {"output_tokens": used.output_tokens}
    await reply.send(_event("message_delta", delta=stop, usage=usage))
    await reply.send(_event("message_stop"))
    await reply.close_stream()


def _blocks(step: Step) -> list[tuple[dict[str, Any], list[dict[str, Any]]]]:
    blocks: list[tuple[dict[str, Any], list[dict[str, Any]]]] = []
    if pieces := step.pieces():
        deltas = [{"type": "text_delta", "text": piece} for piece in pieces]
        blocks.append(({"type": "text", "text": ""}, deltas))
    for call in step.tool_calls():
        block = {"type": "tool_use", "id": call.id, "name": call.name, "input": {}}
        whole = json.dumps(call.arguments)
        blocks.append((block, [{"type": "input_json_delta", "partial_json": whole}]))
    return blocks


def _event(kind: str, **fields: Any) -> str:
    return f"event: {kind}\ndata: {json.dumps({'type': kind, **fields})}\n\n"


def _error(kind: str, message: str) -> dict[str, Any]:
    return {"type": "error", "error": {"type": kind, "message": message}}
