"""OpenAI's client, without its walk over the conversation.

Before each request the SDK compares every message with the type hints of its parameters, to rename
fields that have an alias. Messages have none, so the walk changes nothing, but it was half of a
worker's work in a long session. `extra_body` is merged into the body after the walk: a message that
is sent there goes out byte for byte as it would have gone otherwise (tests compare the bodies).
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

from openai import AsyncOpenAI
from openai.resources.chat import AsyncChat, AsyncCompletions

# What grows with a session, or is large; each is plain JSON already.
_PLAIN = ("messages", "tools")


class PlainCompletions(AsyncCompletions):
    """Chat completions whose messages and tools are sent as they are given."""

    async def create(self, **parameters: Any) -> Any:
        """As the SDK's, with plain JSON in `messages` and `tools`."""
        plain = {name: parameters[name] for name in _PLAIN if parameters.get(name)}
        # An empty list keeps the field's place in the body.
        emptied = {**parameters, **{name: [] for name in plain}}
        emptied["extra_body"] = {**plain, **(parameters.get("extra_body") or {})}
        return await super().create(**emptied)


class PlainChat(AsyncChat):
    """The chat part of the client."""

    @cached_property
    def completions(self) -> PlainCompletions:
        """Its only endpoint that we call."""
        return PlainCompletions(self._client)


class PlainOpenAI(AsyncOpenAI):
    """The client."""

    @cached_property
    def chat(self) -> PlainChat:
        """The chat part."""
        return PlainChat(self)
