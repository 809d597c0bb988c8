"""Embeddings as OpenAI serves them, of a bag of words: what shares words is near."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import re
import struct
from collections import deque
from dataclasses import dataclass, field
from typing import Any

from tests.stub.http_stub import Reply

DIMS = 64
PIECES_S = 0.01


@dataclass
class Embeddings:
    """What the stub does when it is asked for vectors; tests change it while it serves."""

    # One element a request: an HTTP status, "drop" to break off, "garbage" for no JSON of ours.
    faults: deque[int | str] = field(default_factory=deque)
    # A status for every request until it is None again.
    always: int | None = None
    # Requests after so many wait until it is None again, so that a test can kill somebody then.
    held_after: int | None = None
    texts: list[str] = field(default_factory=list)
    requests: int = 0

    def reset(self) -> None:
        """As it was at the start."""
        self.faults.clear()
        self.always, self.held_after, self.requests = None, None, 0
        self.texts.clear()

    async def answer(self, body: dict[str, Any], reply: Reply) -> None:
        """One request."""
        self.requests += 1
        number = self.requests
        # Set from another thread, so there is no event to wait for.
        while self.held_after is not None and number > self.held_after:  # noqa: ASYNC110
            await asyncio.sleep(PIECES_S)
        fault = self.faults.popleft() if self.faults else self.always
        if fault == "drop":
            reply.drop()
        if fault == "garbage":
            await reply.json(200, {"object": "list", "data": "none"})
            return
        if fault is not None:
            error = {"message": "scripted", "type": "scripted_error", "code": None}
            await reply.json(int(fault), {"error": error})
            return
        texts = [body["input"]] if isinstance(body["input"], str) else list(body["input"])
        self.texts += texts
        await reply.json(200, _answer(body, texts))


def vector(text: str) -> list[float]:
    """The words of a text, each at a place that follows from its hash."""
    values = [0.0] * DIMS
    for word in re.findall(r"\w+", text.lower()):
        digest = hashlib.sha256(word.encode()).digest()
        values[digest[0] % DIMS] += 1.0
    return values if any(values) else [1.0, *values[1:]]


def _answer(body: dict[str, Any], texts: list[str]) -> dict[str, Any]:
    packed = body.get("encoding_format") == "base64"
    data = [
        {
            "object": "embedding",
            "index": index,
            "embedding": _packed(text) if packed else vector(text),
        }
        for index, text in enumerate(texts)
    ]
    tokens = sum(len(text.split()) for text in texts)
    usage = {"prompt_tokens": tokens, "total_tokens": tokens}
    return {"object": "list", "data": data, "model": body["model"], "usage": usage}


def _packed(text: str) -> str:
    return base64.b64encode(struct.pack(f"<{DIMS}f", *vector(text))).decode()
