"""How many tokens a text is, estimated offline, and how many a model takes."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from functools import lru_cache
from math import ceil

from holdfast.agent.conversation import Turn
from holdfast.agent.routes import Route
from holdfast.agent.tools.tool_spec import ToolSpec
from holdfast.settings.config import Config

UNKNOWN_WINDOW_TOKENS = 8192
# Reported usage covers what was sent; only the tail is estimated, and an estimate may be low.
TAIL_MARGIN = 1.15
_TURN_OVERHEAD_TOKENS = 4
_ESTIMATE_CHARS_MAX = 400_000
_REMEMBERED_CHARS_MAX = 4_000

_PIECES = re.compile(
    r"(?P<wide>[\u1100-\u11ff\u2e80-\u9fff\uac00-\ud7af\uf900-\ufaff\uff00-\uffef])"
    r"|(?P<latin>[A-Za-z]+)"
    r"|(?P<digits>[0-9]+)"
    r"|(?P<letters>[^\W\d_]+)"
    r"|(?P<space>[ \t]+|[\r\n]+)"
    r"|(?P<marks>[^\w\s]+|_+)"
    r"|(?P<other>.)",
    re.DOTALL,
)


def estimate(text: str) -> int:
    """About how many tokens `text` is; within a tenth for prose and code, low for base64."""
    if len(text) > _ESTIMATE_CHARS_MAX:
        # A sample bounds the time; such texts are uniform (logs, data).
        return ceil(estimate(text[:_ESTIMATE_CHARS_MAX]) * len(text) / _ESTIMATE_CHARS_MAX)
    return _estimate_once(text) if len(text) <= _REMEMBERED_CHARS_MAX else _count(text)


@lru_cache(maxsize=16_384)
def _estimate_once(text: str) -> int:
    """A conversation is estimated again with each step, and most of it is as it was."""
    return _count(text)


def _count(text: str) -> int:
    return ceil(sum(_weight(piece) for piece in _PIECES.finditer(text)))


def _weight(piece: re.Match[str]) -> float:
    length = piece.end() - piece.start()
    match piece.lastgroup:
        case "wide":
            return 0.85
        case "latin":
            # A word is one token up to seven letters; longer ones split about every five.
            return 1.0 if length <= 7 else 1 + (length - 7) / 5
        case "digits":
            return ceil(length / 3)
        case "letters":
            return max(1.0, length / 3.5)
        case "space":
            # A single space belongs to the word after it.
            return 0.0 if length == 1 and piece.group() == " " else 1.0
        case "marks":
            return max(1.0, length / 2)
    return 1.0


def estimate_turns(turns: Sequence[Turn]) -> int:
    """About how many tokens the whole conversation is."""
    return sum(estimate_turn(turn) for turn in turns)


def estimate_turn(turn: Turn) -> int:
    """About how many tokens one turn is, its tool calls included."""
    calls = sum(estimate(call.name) + estimate(str(call.arguments)) for call in turn.tool_calls)
    return _TURN_OVERHEAD_TOKENS + estimate(turn.text) + calls


def estimate_tools(tools: Sequence[ToolSpec]) -> int:
    """About how many tokens the descriptions of the tools are."""
    return sum(estimate(one.description) + estimate(json.dumps(one.parameters)) for one in tools)


def context_size(reported_tokens: int | None, tail: Sequence[Turn]) -> int:
    """The size of the next request: what the last answer reported, plus what came since."""
    return (reported_tokens or 0) + ceil(TAIL_MARGIN * estimate_turns(tail))


def context_window(route: Route, config: Config | None = None) -> int:
    """The model's window: from config.toml, else from the price table, else 8192."""
    configured = route.context_window
    if configured is None and config is not None and route.provider in config.providers:
        configured = config.providers[route.provider].context_window
    return configured or _listed_window(route.driver, route.model) or UNKNOWN_WINDOW_TOKENS


@lru_cache(maxsize=256)
def _listed_window(driver: str, model: str) -> int | None:
    if driver in {"ollama", "scripted"}:
        return None
    # The table takes 0.2 s to load, so only those who ask for it pay.
    from genai_prices.data_snapshot import get_snapshot  # noqa: PLC0415

    try:
        _, found = get_snapshot().find_provider_model(model, None, driver, None)
    except LookupError:
        return None
    return found.context_window
