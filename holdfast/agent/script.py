"""Scripts inside operator messages: what a scripted model does, one element per model call.

Which element is next follows from the conversation alone, so a repeated call repeats the element.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from typing import Any

from holdfast.agent.conversation import ToolCall, Turn, Usage
from holdfast.agent.errors import PermanentProviderError
from holdfast.agent.summary import SUMMARY_HEAD
from holdfast.agent.text import clean_json

SCRIPT_CHARS_MAX = 1024 * 1024
ELEMENTS_MAX = 10_000
DELTAS_MAX = 100_000
NUMBER_MAX = 1_000_000_000
ERRORS = frozenset({"overflow", "connection"})
_FENCE = re.compile(r"```script[ \t]*\r?\n(.*?)```", re.DOTALL)
_STEP_ID = re.compile(r"scripted_[0-9a-f]{8}_(\d+)_")


@dataclass(frozen=True)
class Step:
    """One element of a script, as the fields of docs/providers.md name them."""

    say: str = ""
    chunks: int = 1
    deltas: int = 0
    every_ms: float = 0
    calls: tuple[tuple[str, Any], ...] = ()
    error: int | str | None = None
    times: int | None = None
    overflow_above: int | None = None
    hang_s: float = 0
    drop: bool = False
    garbage: bool = False
    usage: Usage | None = None
    index: int = 0
    key: str = field(default="00000000", compare=False)

    def pieces(self) -> list[str]:
        """The text in the pieces in which it is streamed."""
        if self.deltas:
            return [f"{number} " for number in range(1, min(self.deltas, DELTAS_MAX) + 1)]
        return split(self.say, self.chunks)

    def tool_calls(self) -> tuple[ToolCall, ...]:
        """The calls, with ids that say which step they belong to."""
        return tuple(
            ToolCall(f"scripted_{self.key}_{self.index}_{number}", name, arguments)
            if isinstance(arguments, dict)
            else ToolCall(
                f"scripted_{self.key}_{self.index}_{number}", name, {}, "they are not an object"
            )
            for number, (name, arguments) in enumerate(self.calls)
        )


END = Step(say="The script is finished.")


def next_step(turns: Sequence[Turn]) -> Step | None:
    """The element that answers `turns`; None when the last operator message holds no script."""
    position = last_question(turns)
    if position is None:
        return None
    elements = script_in(turns[position].text)
    if elements is None:
        return None
    index = _steps_done(turns[position + 1 :])
    element = _element(elements, index)
    key = hashlib.sha256(turns[position].text.encode("utf-8", "replace")).hexdigest()[:8]
    return END if element is None else parse_element(element, index, key)


def parse_element(element: dict[str, Any], index: int = 0, key: str = "00000000") -> Step:
    """The element as a step, or the `bad_script` error."""
    values = dict(clean_json(element))
    calls = values.pop("calls", [])
    if "call" in values:
        calls = [{"call": values.pop("call"), "arguments": values.pop("arguments", {})}]
    usage = values.pop("usage", None)
    known = {item.name for item in fields(Step)} - {"calls", "usage", "index", "key"}
    if unknown := sorted(set(values) - known):
        raise bad_script(f"unknown key {unknown[0]!r}")
    for name, value in values.items():
        if not _fits(name, value):
            raise bad_script(f"{name!r} cannot be {str(value)[:80]!r}")
    try:
        return Step(
            calls=tuple((str(_call_name(call)), call.get("arguments", {})) for call in calls),
            usage=None if usage is None else _usage(usage),
            index=index,
            key=key,
            **values,
        )
    except (TypeError, AttributeError) as error:
        raise bad_script(str(error)) from error


def last_question(turns: Sequence[Turn]) -> int | None:
    """The position of the last message that an operator wrote; summaries are not."""
    for position in range(len(turns) - 1, -1, -1):
        turn = turns[position]
        if turn.role == "user" and not turn.text.startswith(SUMMARY_HEAD):
            return position
    return None


def script_in(text: str) -> list[Any] | None:
    """The elements of the script in `text`: the whole text as JSON, or a fenced block."""
    if len(text) > SCRIPT_CHARS_MAX:
        return None
    stripped = text.strip()
    if stripped.startswith("{") and '"script"' in stripped:
        try:
            found = json.loads(stripped)
        except (ValueError, RecursionError):
            return None
        return _elements(found) if isinstance(found.get("script"), list) else None
    fenced = _FENCE.search(text)
    if fenced is None:
        return None
    try:
        return _elements(json.loads(fenced.group(1)))
    except (ValueError, RecursionError) as error:
        raise bad_script(f"not valid JSON: {error}") from error


def split(text: str, chunks: int) -> list[str]:
    """`text` in about `chunks` pieces that join to it again."""
    if not text:
        return []
    size = max(1, -(-len(text) // max(chunks, 1)))
    return [text[start : start + size] for start in range(0, len(text), size)]


def bad_script(reason: str) -> PermanentProviderError:
    """The error that a script which cannot be read fails with."""
    return PermanentProviderError("bad_script", f"The script cannot be used: {reason}")


def _elements(found: object) -> list[Any]:
    elements = found.get("script") if isinstance(found, dict) else found
    if not isinstance(elements, list) or len(elements) > ELEMENTS_MAX:
        raise bad_script(f"it must be a list of at most {ELEMENTS_MAX} elements")
    return elements


def _steps_done(turns: Sequence[Turn]) -> int:
    """How many elements were played; compaction may have taken early ones away, ids tell."""
    answers = [turn for turn in turns if turn.role == "assistant"]
    marks = [_STEP_ID.match(call.id) for turn in answers for call in turn.tool_calls]
    return max([len(answers), *(int(mark.group(1)) + 1 for mark in marks if mark)])


def _element(elements: Sequence[Any], index: int) -> dict[str, Any] | None:
    """The element at `index`, with repeats counted and not unrolled."""
    for element in elements:
        if not isinstance(element, dict):
            raise bad_script("each element must be an object")
        if "repeat" not in element:
            if index == 0:
                return element
            index -= 1
            continue
        inner = element.get("steps", [element.get("step")])
        times = element["repeat"]
        if not isinstance(times, int) or not isinstance(inner, list) or not inner:
            raise bad_script('"repeat" needs a number and a "step"')
        if index < times * len(inner):
            return _element([inner[index % len(inner)]], 0)
        index -= times * len(inner)
    return None


def _fits(name: str, value: object) -> bool:
    if name == "say":
        return isinstance(value, str)
    if name in {"drop", "garbage"}:
        return isinstance(value, bool)
    if name == "error" and isinstance(value, str):
        return value in ERRORS
    whole = name not in {"every_ms", "hang_s"}
    if isinstance(value, bool) or not isinstance(value, int if whole else (int, float)):
        return False
    return 0 <= value <= NUMBER_MAX


def _usage(values: dict[str, Any]) -> Usage:
    if not all(_fits(name, value) for name, value in values.items()):
        raise bad_script('"usage" must hold numbers of tokens')
    return Usage(**values)


def _call_name(call: dict[str, Any]) -> Any:
    name = call.get("call", call.get("name"))
    if not name:
        raise bad_script("a call needs a name")
    return name
