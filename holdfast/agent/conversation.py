"""The conversation in no provider's dialect: turns, tool calls, answers and what they used."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import Any, Literal, TypeVar

from holdfast.agent.text import clean

Role = Literal["system", "user", "assistant", "tool"]
CostStatus = Literal["estimated", "actual", "unknown"]

INTERRUPTED = "interrupted; unknown whether it took effect"
# Anthropic refuses a conversation whose first message is the assistant's, and empty texts.
CONTINUED = "(The earlier part of this conversation is not shown.)"
EMPTY = "(empty message)"
# The strictest of the providers: OpenAI caps ids at 40 characters, Anthropic their alphabet.
_ID = re.compile(r"[A-Za-z0-9_-]{1,40}")
_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")


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


Part = TypeVar("Part", Turn, ToolCall)


def repair(turns: Iterable[Turn]) -> list[Turn]:
    """The same conversation, valid for OpenAI and Anthropic; repairing twice changes nothing.

    Results follow their call at once, in the order of the calls: a call without one gets
    `INTERRUPTED`, a result without a call and a second result or call of one id are left out.
    """
    known = [_portable(turn) for turn in turns]
    results = _results(known)
    repaired: list[Turn] = []
    called: set[str] = set()
    begun = False  # somebody but the system has spoken
    for position, turn in enumerate(known):
        if turn.role == "tool":
            continue
        calls = _first_of_each(turn.tool_calls, called) if turn.role == "assistant" else ()
        if not turn.text.strip() and not calls:
            if turn.role == "user":
                repaired.append(Turn("user", EMPTY))
                begun = True
            continue
        if turn.role == "assistant" and not begun:
            repaired.append(Turn("user", CONTINUED))
        begun = begun or turn.role != "system"
        repaired.append(_with(turn, tool_calls=calls, tool_call_id=None, tool_name=None))
        repaired.extend(_result(call, known, results, position) for call in calls)
    return repaired


def _results(known: Sequence[Turn]) -> dict[str | None, list[int]]:
    """Where the results of each call stand."""
    found: dict[str | None, list[int]] = {}
    for position, turn in enumerate(known):
        if turn.role == "tool":
            found.setdefault(turn.tool_call_id, []).append(position)
    return found


def _first_of_each(calls: Iterable[ToolCall], called: set[str]) -> tuple[ToolCall, ...]:
    fresh = []
    for call in calls:
        if call.id not in called:
            called.add(call.id)
            fresh.append(call)
    return tuple(fresh)


def _result(
    call: ToolCall, known: Sequence[Turn], results: dict[str | None, list[int]], after: int
) -> Turn:
    """The first result of the call that comes after it."""
    for position in results.get(call.id, ()):
        if position > after:
            return _with(known[position], tool_calls=(), tool_name=call.name)
    return Turn("tool", INTERRUPTED, tool_call_id=call.id, tool_name=call.name)


def _portable(turn: Turn) -> Turn:
    text = clean(turn.text)
    if turn.role == "tool":
        return _with(turn, text=text, tool_call_id=portable_id(turn.tool_call_id or ""))
    calls = tuple(
        _with(call, id=portable_id(call.id), name=_portable_name(call.name))
        for call in turn.tool_calls
    )
    return _with(turn, text=text, tool_calls=calls)


def _with(part: Part, **fields: Any) -> Part:
    """The same part when its fields are so already: of a long conversation nearly all are."""
    if all(getattr(part, name) == value for name, value in fields.items()):
        return part
    return replace(part, **fields)


def portable_id(provider_id: str) -> str:
    """A tool call id that every provider accepts; the same id always becomes the same one."""
    if _ID.fullmatch(provider_id):
        return provider_id
    return f"call_{hashlib.sha256(provider_id.encode('utf-8', 'replace')).hexdigest()[:24]}"


def _portable_name(name: str) -> str:
    return name if _NAME.fullmatch(name) else re.sub(r"[^A-Za-z0-9_-]", "_", name)[:64] or "unknown"
