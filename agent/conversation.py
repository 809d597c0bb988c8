"""The conversation in no provider's dialect: turns, tool calls, answers and what they used."""

from __future__ import annotations

from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, Literal

Role = Literal["system", "user", "assistant", "tool"]
CostStatus = Literal["estimated", "actual", "unknown"]


@dataclass(frozen=True)
class ToolCall:
    """One call that the model asked for; `invalid_arguments` says why `arguments` is empty."""

    id: str
    name: str
    arguments: dict[str, Any] = field(default_factory=dict)
    invalid_arguments: str | None = None


@dataclass(frozen=True)
class Turn:
    """One message; a `tool` turn answers the call named by `tool_call_id`."""

    role: Role
    text: str
    tool_calls: tuple[ToolCall, ...] = ()
    tool_call_id: str | None = None
    tool_name: str | None = None


@dataclass(frozen=True)
class Usage:
    """Tokens of one model call; `input_tokens` includes those read from or written to the cache."""

    input_tokens: int = 0
    output_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0
    reasoning_tokens: int = 0


@dataclass(frozen=True)
class ModelAnswer:
    """What one model call gave; `cost_usd` is None when nobody knows the price."""

    text: str
    tool_calls: tuple[ToolCall, ...]
    usage: Usage
    finish_reason: str | None
    model: str
    provider: str
    cost_usd: Decimal | None = None
    cost_status: CostStatus = "unknown"
    cost_source: str | None = None
