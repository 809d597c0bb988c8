"""What compaction takes out of a conversation: the choice only, nothing is changed here."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from holdfast.agent.conversation import Role, ToolCall

RESERVED_OUTPUT_TOKENS = 4096


@dataclass(frozen=True)
class Entry:
    """One message as compaction sees it; a `summary` of ours may be compacted again."""

    id: str
    role: Role
    text: str
    tool_calls: tuple[ToolCall, ...] = ()
    tool_call_id: str | None = None
    pinned: bool = False
    tokens: int = 0
    summary: bool = False


@dataclass(frozen=True)
class CompactionPlan:
    """Which messages go, oldest first, and how full the context was."""

    superseded: tuple[str, ...]
    tokens_before: int
    tokens_usable: int
    window_upper: float
    window_lower: float

    @property
    def threshold_estimate(self) -> float:
        """How full the context was, as a fraction (K-074)."""
        return round(self.tokens_before / self.tokens_usable, 4)


def usable(window: int, reserved: int | None = None) -> int:
    """The window less what is kept free for the answer; at least half of a small window."""
    kept_free = RESERVED_OUTPUT_TOKENS if reserved is None else reserved
    return max(window - kept_free, window // 2, 1)


def due(tokens: int, *, upper: float, window: int, reserved: int | None = None) -> bool:
    """Whether the context has reached the upper mark, the mark itself included."""
    return tokens >= upper * usable(window, reserved)


def plan(
    messages: Sequence[Entry],
    *,
    upper: float,
    lower: float,
    window: int,
    keep_turns: int,
    pinned: Collection[str] = (),
    reserved: int | None = None,
    extra_tokens: int = 0,
    summary_tokens: int = 0,
    everything: bool = False,
) -> CompactionPlan:
    """The oldest whole turns whose removal brings the context under the lower mark.

    A turn is a user message, or an assistant message with the results of its tool calls: these
    are never separated. Always kept: system and pinned messages, the last user message with the
    last answer, open tool calls, and the newest `keep_turns` turns. `extra_tokens` are those of
    the prompt and the tools, `summary_tokens` those of the summary to come; `everything` takes
    all that may go, for an operator who asks by hand.
    """
    available = usable(window, reserved)
    before = extra_tokens + sum(entry.tokens for entry in messages)
    turns = _turns(messages)
    kept = _always_kept(messages, turns, keep_turns, set(pinned))
    tokens = before + summary_tokens
    gone: set[int] = set()
    for turn in turns:
        if tokens <= lower * available and not everything:
            break
        if not kept.intersection(turn):
            gone.update(turn)
            tokens -= sum(messages[index].tokens for index in turn)
    return CompactionPlan(
        superseded=tuple(entry.id for index, entry in enumerate(messages) if index in gone),
        tokens_before=before,
        tokens_usable=available,
        window_upper=upper,
        window_lower=lower,
    )


def whole_turns(messages: Sequence[Entry], chosen: Collection[str]) -> list[str]:
    """The chosen messages, oldest first, each with the rest of its turn."""
    wanted = set(chosen)
    touched = {
        index
        for turn in _turns(messages)
        if any(messages[index].id in wanted for index in turn)
        for index in turn
    }
    return [entry.id for index, entry in enumerate(messages) if index in touched]


def _turns(messages: Sequence[Entry]) -> list[list[int]]:
    """The positions of each turn's messages; a result joins the turn that holds its call."""
    turns: list[list[int]] = []
    turn_of_call: dict[str, list[int]] = {}
    for index, entry in enumerate(messages):
        owner = turn_of_call.get(entry.tool_call_id or "") if entry.role == "tool" else None
        if owner is not None:
            owner.append(index)
            continue
        turn = [index]
        turns.append(turn)
        for call in entry.tool_calls:
            turn_of_call.setdefault(call.id, turn)
    return turns


def _always_kept(
    messages: Sequence[Entry], turns: list[list[int]], keep_turns: int, pinned: set[str]
) -> set[int]:
    answered = {entry.tool_call_id for entry in messages if entry.role == "tool"}
    kept = {
        index
        for index, entry in enumerate(messages)
        if entry.pinned
        or entry.id in pinned
        or (entry.role == "system" and not entry.summary)
        or any(call.id not in answered for call in entry.tool_calls)
    }
    for role in ("user", "assistant"):
        said = [i for i, entry in enumerate(messages) if entry.role == role and not entry.summary]
        kept.update(said[-1:])
    spoken = [turn for turn in turns if messages[turn[0]].role != "system"]
    for turn in spoken[-max(keep_turns, 1) :]:
        kept.update(turn)
    return kept
