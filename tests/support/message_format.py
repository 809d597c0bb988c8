"""The rules of the OpenAI and Anthropic message formats, which a repaired conversation keeps."""

from __future__ import annotations

import re
from collections.abc import Sequence

from holdfast.agent.conversation import Turn

# The strictest of the providers: OpenAI caps ids at 40 characters, Anthropic their alphabet.
_ID = re.compile(r"[A-Za-z0-9_-]{1,40}")
_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")


def broken_rules(turns: Sequence[Turn]) -> list[str]:
    """What makes `turns` invalid for OpenAI or Anthropic, each rule in words."""
    problems: list[str] = []
    open_ids: list[str] = []
    seen: set[str] = set()
    started = False
    for position, turn in enumerate(turns):
        where = f"turn {position} ({turn.role})"
        if turn.role == "tool":
            if turn.tool_call_id in open_ids:
                open_ids.remove(turn.tool_call_id)
            else:
                problems.append(f"{where}: answers no call of the assistant turn before it")
            continue
        if open_ids:
            problems.append(f"{where}: comes before the results of {', '.join(open_ids)}")
            open_ids = []
        if turn.role == "assistant" and not started:
            problems.append(f"{where}: the first turn must be the user's")
        started = started or turn.role != "system"
        problems += [f"{where}: {problem}" for problem in _own_problems(turn, seen)]
        seen.update(call.id for call in turn.tool_calls)
        open_ids = [call.id for call in turn.tool_calls]
    if open_ids:
        problems.append(f"at the end: no results of {', '.join(open_ids)}")
    return problems


def _own_problems(turn: Turn, seen: set[str]) -> list[str]:
    problems = []
    if turn.tool_calls and turn.role != "assistant":
        problems.append("only the assistant calls tools")
    if not turn.text.strip() and not turn.tool_calls:
        problems.append("is empty")
    ids = [call.id for call in turn.tool_calls]
    if len(set(ids)) < len(ids) or seen.intersection(ids):
        problems.append("a tool call id is used twice")
    for call in turn.tool_calls:
        if not _ID.fullmatch(call.id):
            problems.append(f"tool call id {call.id!r} is not portable")
        if not _NAME.fullmatch(call.name):
            problems.append(f"tool name {call.name!r} is not portable")
    return problems
