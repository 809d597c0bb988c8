"""One streamed model call, whatever the provider: `resolve` a route, then `complete` on it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from agent.conversation import ModelAnswer, Turn
from agent.routes import Route, resolve
from agent.tools.specs import ToolSpec

OnText = Callable[[str], Awaitable[None] | None]

__all__ = ["OnText", "complete", "resolve"]


async def complete(
    route: Route,
    turns: Sequence[Turn],
    tools: Sequence[ToolSpec],
    *,
    on_text: OnText,
    max_output_tokens: int | None = None,
) -> ModelAnswer:
    """The model's answer to `turns`; `on_text` gets each piece of text as it arrives."""
    raise NotImplementedError
