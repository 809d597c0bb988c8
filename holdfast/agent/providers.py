"""One streamed model call, whatever the provider: `resolve` a route, then `complete` on it."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import replace
from importlib import import_module

from holdfast.agent import scripted
from holdfast.agent.conversation import ModelAnswer, ToolCall, Turn, portable_id, repair
from holdfast.agent.prices import cost_of
from holdfast.agent.routes import Route, resolve
from holdfast.agent.tools.tool_spec import ToolSpec

OnText = Callable[[str], Awaitable[None] | None]
_MODULES = {
    "openai": "pydantic_ai.models.openai",
    "ollama": "pydantic_ai.models.openai",
    "anthropic": "pydantic_ai.models.anthropic",
    "google": "pydantic_ai.models.google",
}
_imported: set[str] = set()

__all__ = ["OnText", "close_clients", "complete", "resolve", "warm_up"]


async def complete(
    route: Route,
    turns: Sequence[Turn],
    tools: Sequence[ToolSpec],
    *,
    on_text: OnText,
    max_output_tokens: int | None = None,
) -> ModelAnswer:
    """The model's answer to `turns`; `on_text` gets each piece of text as it arrives.

    One request, never retried here. Raises PermanentProviderError, PassingProviderError or
    ContextOverflow; what `on_text` raises passes through. Cancelling closes the connection.
    """
    valid = repair(turns)
    if route.driver == "scripted":
        answer = await scripted.answer(route, valid, tools, on_text=on_text)
    else:
        # The import may take seconds, and a loop that waits for it cannot heartbeat.
        if route.driver not in _imported:
            await asyncio.to_thread(warm_up, [route.driver])
        from holdfast.agent import pydantic_bridge  # noqa: PLC0415

        answer = await pydantic_bridge.stream(
            route, valid, tools, on_text=on_text, max_output_tokens=max_output_tokens
        )
    cost_usd, cost_status, cost_source = cost_of(route, answer.usage)
    return replace(
        answer,
        tool_calls=_with_unique_ids(answer.tool_calls, valid),
        cost_usd=cost_usd,
        cost_status=cost_status,
        cost_source=cost_source,
    )


def warm_up(drivers: Iterable[str]) -> None:
    """Import what the first call would import; a worker does so in a thread while it starts."""
    real = {driver for driver in drivers if driver != "scripted"}
    modules = [module for driver, module in _MODULES.items() if driver in real]
    prices = "genai_prices.data_snapshot"
    for module in ["holdfast.agent.pydantic_bridge", prices, *modules] if real else []:
        import_module(module)
    _imported.update(real)


async def close_clients() -> None:
    """Close the connections that the running event loop holds to providers."""
    if "holdfast.agent.pydantic_clients" in sys.modules:
        await sys.modules["holdfast.agent.pydantic_clients"].clients().close()


def _with_unique_ids(calls: Sequence[ToolCall], turns: Sequence[Turn]) -> tuple[ToolCall, ...]:
    """Portable ids that no other call of the conversation has; some servers count from zero."""
    taken = {call.id for turn in turns for call in turn.tool_calls}
    unique = []
    for call in calls:
        wanted = portable_id(call.id or f"call_{len(taken)}")
        fresh, number = wanted, 2
        while fresh in taken:
            fresh, number = f"{wanted[:34]}_{number}", number + 1
        taken.add(fresh)
        unique.append(replace(call, id=fresh))
    return tuple(unique)
