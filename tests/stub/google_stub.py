"""A server for tests that speaks Google's streamed generateContent."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from holdfast.agent.conversation import Turn, Usage
from holdfast.agent.script import Step
from tests.stub.http_stub import Recorded, Reply
from tests.stub.scripted_stub import ScriptedStub


class GoogleStub(ScriptedStub):
    """`POST /v1beta/models/<model>:streamGenerateContent`."""

    @property
    def base_url(self) -> str:
        """What `base_url` of a provider must be."""
        return f"http://127.0.0.1:{self.port}"

    async def handle(self, recorded: Recorded, reply: Reply) -> None:
        """Answer one request as Google would."""
        turns = [Turn("user", json.dumps(recorded.body["contents"]))]
        step = self.next_step(turns)
        if isinstance(step.error, int):
            error = {"code": step.error, "message": "scripted", "status": "SCRIPTED"}
            await reply.json(step.error, {"error": error})
            return
        await reply.open_stream()
        for piece in step.pieces():
            if step.every_ms:
                await asyncio.sleep(step.every_ms / 1000)
            await reply.send(_event([{"text": piece}]))
        await reply.send(_last_event(step))
        await reply.close_stream()


def _last_event(step: Step) -> str:
    used = step.usage or Usage(10, 5)
    calls = [
        {"functionCall": {"name": call.name, "args": call.arguments}} for call in step.tool_calls()
    ]
    return _event(
        calls or [{"text": ""}],
        finish="STOP",
        usageMetadata={
            "promptTokenCount": used.input_tokens,
            "candidatesTokenCount": used.output_tokens,
            "totalTokenCount": used.input_tokens + used.output_tokens,
        },
    )


def _event(parts: list[dict[str, Any]], finish: str | None = None, **fields: Any) -> str:
    candidate: dict[str, Any] = {"content": {"role": "model", "parts": parts}, "index": 0}
    if finish is not None:
        candidate["finishReason"] = finish
    return f"data: {json.dumps({'candidates': [candidate], **fields})}\n\n"
