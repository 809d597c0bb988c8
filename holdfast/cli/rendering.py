"""A session's frames as lines in a terminal: text as it comes, tool calls and states beside it."""

from __future__ import annotations

import json
import os
import sys
from typing import Any

from holdfast.cli.needs import trouble_line
from holdfast.cli.output import clean
from holdfast.client.frames import Frame

WORDS_MAX = 120
# Events that a person at the terminal wants to see; the rest is for `holdfast log`.
LOUD_EVENTS = (
    "session.state",
    "session.crash_recovered",
    "session.failed",
    "run.completed",
    "run.cancelled",
    "checkpoint.",
    "compaction.",
    "attention.required",
    "approval.decided",
    "permission.",
    "model.",
    "message.steered",
    "message.waiting",
    "command.refused",
    "dsl.changed",
    "pty.",
)


class Renderer:
    """Writes text to stdout and notes to stderr; nothing that was streamed is written twice."""

    def __init__(self) -> None:
        self.streamed: dict[str, str] = {}
        self.open_message: str | None = None
        self.dim, self.plain = ("\x1b[2m", "\x1b[0m") if sys.stderr.isatty() else ("", "")
        self._together = _shown_together()

    def show(self, frame: Frame) -> None:
        """Write what the frame adds."""
        payload = frame.payload
        if frame.channel == "output" and frame.type == "delta":
            self._write(str(payload.get("message_id")), str(payload.get("text") or ""))
        elif frame.type == "message":
            self.message(payload.get("message") or payload)
        elif frame.type in {"tool_call", "tool_result"}:
            self.close_line()
            self.note(_tool_line(frame.type, payload))
        elif frame.channel == "events" and frame.type.startswith(LOUD_EVENTS):
            self.note(_event_line(frame.type, payload))
        elif frame.type == "closing" and payload.get("code") == "resume_failed":
            self.note("… output was missed while away; `holdfast show` has it")

    def message(self, message: dict[str, Any]) -> None:
        """Write what has not been streamed of a whole message."""
        if message.get("role") not in {"primary", "subagent", "system"}:
            return
        text = plain_text(message.get("content"))
        known = self.streamed.get(message["id"], "")
        if not text.startswith(known):
            self.close_line()
            known = ""
        self._write(message["id"], text[len(known) :])
        self.close_line()

    def note(self, text: str) -> None:
        """A line about what happens, beside the text; text that goes elsewhere stays as it is."""
        if self._together:
            self.close_line()
        sys.stderr.write(f"{self.dim}{clean(text)}{self.plain}\n")
        sys.stderr.flush()

    def close_line(self) -> None:
        """End the line that is being streamed."""
        if self.open_message is not None:
            sys.stdout.write("\n")
            sys.stdout.flush()
            self.open_message = None

    def _write(self, message_id: str, text: str) -> None:
        if not text:
            return
        if self.open_message != message_id:
            self.close_line()
            self.open_message = message_id
        self.streamed[message_id] = self.streamed.get(message_id, "") + text
        sys.stdout.write(clean(text))
        sys.stdout.flush()


def _shown_together() -> bool:
    """Whether text and notes come to the same place, where one would run into the other."""
    try:
        return os.path.samestat(os.fstat(sys.stdout.fileno()), os.fstat(sys.stderr.fileno()))
    except (OSError, ValueError):
        return False


def plain_text(content: Any) -> str:
    """A message's content as text, whatever its shape."""
    if content is None:
        return ""
    return content if isinstance(content, str) else json.dumps(content, ensure_ascii=False)


def history_line(message: dict[str, Any]) -> str:
    """One earlier message, for the top of an attached view."""
    who = {"operator": "you", "primary": "agent"}.get(message["role"], message["role"])
    crossed = " (superseded)" if message.get("superseded") else ""
    return f"{who}{crossed}: {clean(plain_text(message.get('content')))}"


def _tool_line(kind: str, payload: dict[str, Any]) -> str:
    name = payload.get("tool_name") or "tool"
    if kind == "tool_call":
        arguments = payload.get("input")
        if isinstance(arguments, dict) and isinstance(arguments.get("command"), str):
            return f"▸ {name}: {_short(arguments['command'])}"
        return f"▸ {name} {_short(plain_text(arguments))}"
    outcome = payload.get("output")
    if isinstance(outcome, dict) and "exit_code" in outcome:
        took_s = (outcome.get("duration_ms") or 0) / 1000
        return f"◂ {name}: exit code {outcome['exit_code']} after {took_s:.1f} s"
    return f"◂ {name}: {_short(plain_text(outcome))}"


def _event_line(kind: str, payload: dict[str, Any]) -> str:
    if kind == "session.state":
        return f"· {payload.get('from_state')} → {payload.get('to_state')}"
    if kind == "model.retrying":
        return f"· {trouble_line(payload)}"
    if kind == "model.recovered":
        return "· the provider answers again"
    if kind == "attention.required" and payload.get("attention"):
        needed = payload["attention"]
        return f"· needs you ({needed['kind']}): {_short(needed['text'])}"
    if kind == "run.completed":
        took_s = (payload.get("duration_ms") or 0) / 1000
        return f"· run {payload.get('state')} after {took_s:.1f} s"
    data = {key: value for key, value in payload.items() if not key.endswith("_id")}
    return f"· {kind} {_short(json.dumps(data, ensure_ascii=False))}" if data else f"· {kind}"


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= WORDS_MAX else line[: WORDS_MAX - 1] + "…"
