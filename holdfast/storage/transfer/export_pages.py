"""A session for people: Markdown, and one HTML file that needs nothing else."""

from __future__ import annotations

import html
import json
import re
from datetime import UTC, datetime
from typing import Any

_SPEAKERS = {
    "operator": "Operator",
    "primary": "Agent",
    "subagent": "Subagent",
    "system": "System",
    "tool": "Tool",
}
_STYLE = """
:root { color-scheme: light dark; }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 52rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.5rem; } dl { display: grid; grid-template-columns: max-content 1fr; gap: 0 1rem; }
dt { opacity: .7; } article { border-left: 3px solid #8886; margin: 1rem 0; padding: .1rem 1rem; }
article.operator { border-color: #2a7de1; } article.primary { border-color: #2a9d5c; }
article.tool { border-color: #b8860b; } article.superseded { opacity: .55; }
header { font-size: .85rem; opacity: .75; }
pre { white-space: pre-wrap; overflow-wrap: anywhere; font: inherit; margin: .3rem 0; }
article.tool pre, pre.call, pre.code { font: .85rem/1.45 ui-monospace, monospace; }
pre.code { background: #8881; padding: .5rem .75rem; border-radius: .3rem; }
summary { cursor: pointer; font-size: .85rem; opacity: .75; }
"""
# Longer output of a tool is folded away until somebody wants to see it.
_OPEN_LINES_MAX, _OPEN_CHARS_MAX = 30, 4_000
_FENCE = re.compile(r"^ {0,3}(?P<fence>`{3,}(?=[^`]*$)|~{3,})")
# What Markdown would take for a heading: another message, it would seem.
_HEADING = re.compile(r"^(\s{0,3})(#{1,6}(?:\s|$)|=+\s*$|-+\s*$)")


def markdown(document: dict[str, Any]) -> str:
    """The session as Markdown; a message cannot break out of its own section."""
    session = document["session"]
    parts = [f"# {_line(_title(session))}", ""]
    parts += [f"- {name}: {_line(value)}" for name, value in _facts(session)]
    for message in document["messages"]:
        parts += ["", f"## {_heading(message)}", "", _body(message)]
        for call in message["metadata"].get("tool_calls") or []:
            parts += ["", f"Calls `{_line(_call_name(call))}`:", "", _fenced(_arguments(call))]
    return "\n".join(parts) + "\n"


def page(document: dict[str, Any]) -> str:
    """The session as one HTML file: no script, nothing loaded, every text escaped."""
    session = document["session"]
    title = html.escape(_title(session))
    facts = "".join(
        f"<dt>{html.escape(name)}</dt><dd>{html.escape(value)}</dd>"
        for name, value in _facts(session)
    )
    articles = "\n".join(_article(message) for message in document["messages"])
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta http-equiv="Content-Security-Policy" content="default-src \'none\';'
        " style-src 'unsafe-inline'\">\n"
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{title}</title>\n<style>{_STYLE}</style>\n</head>\n<body>\n<h1>{title}</h1>\n"
        f"<dl>{facts}</dl>\n{articles}\n</body>\n</html>\n"
    )


def blocks(text: str) -> list[tuple[bool, str]]:
    """Prose and the code between fences, in turn; a fence that nobody closes ends with the text."""
    parts: list[tuple[bool, str]] = []
    lines: list[str] = []
    fence = ""

    def close(*, is_code: bool) -> None:
        if lines:
            parts.append((is_code, "\n".join(lines)))
            lines.clear()

    for line in text.split("\n"):
        mark = _FENCE.match(line)
        if fence:
            if mark and mark["fence"].startswith(fence) and line.strip() == mark["fence"]:
                close(is_code=True)
                fence = ""
            else:
                lines.append(line)
        elif mark:
            close(is_code=False)
            fence = mark["fence"]
        else:
            lines.append(line)
    close(is_code=bool(fence))
    return parts


def _article(message: dict[str, Any]) -> str:
    kinds = html.escape(message["role"]) + (" superseded" if message["superseded"] else "")
    calls = "".join(
        f'<pre class="call">{html.escape(_call_name(call))} {html.escape(_arguments(call))}</pre>'
        for call in message["metadata"].get("tool_calls") or []
    )
    return (
        f'<article class="{kinds}" id="{html.escape(message["id"])}">'
        f"<header>{html.escape(_heading(message))}</header>{_html(message)}{calls}</article>"
    )


def _html(message: dict[str, Any]) -> str:
    """What was said; code in its own box, long output folded."""
    text = message["content"]
    if message["role"] != "tool":
        boxes = {True: '<pre class="code">', False: "<pre>"}
        return "".join(
            f"{boxes[is_code]}{html.escape(part)}</pre>" for is_code, part in blocks(text)
        )
    lines = text.count("\n") + 1
    shown = f"<pre>{html.escape(text)}</pre>"
    if lines <= _OPEN_LINES_MAX and len(text) <= _OPEN_CHARS_MAX:
        return shown
    return f"<details><summary>{lines} lines, {len(text)} characters</summary>{shown}</details>"


def _title(session: dict[str, Any]) -> str:
    return session["title"] or session["preview"] or f"Session {session['id']}"


def _facts(session: dict[str, Any]) -> list[tuple[str, str]]:
    usage = session["usage"]
    facts = [
        ("session", session["id"]),
        ("state", session["state"]),
        ("source", session["source"]),
        ("started", _time(session["created_at"])),
        ("messages", str(session["message_count"])),
        ("tokens", f"{usage['input_tokens']} in, {usage['output_tokens']} out"),
    ]
    if session["ended_at"] is not None:
        facts.append(("ended", _time(session["ended_at"])))
    if usage["estimated_cost_usd"] is not None:
        facts.append(("estimated cost", f"${usage['estimated_cost_usd']:.4f}"))
    return facts


def _heading(message: dict[str, Any]) -> str:
    speaker = _SPEAKERS.get(message["role"], message["role"])
    name = message["metadata"].get("tool_name")
    if name:
        speaker += f" {_line(str(name))}"
    elif message["role"] == "subagent":
        speaker += f" {_line(message['agent_path'])}"
    superseded = " (superseded)" if message["superseded"] else ""
    return f"{speaker}, {_time(message['created_at'])}{superseded}"


def _body(message: dict[str, Any]) -> str:
    if message["role"] == "tool":
        return _fenced(message["content"])
    return "\n".join(
        _fenced(part) if is_code else "\n".join(_no_heading(line) for line in part.split("\n"))
        for is_code, part in blocks(message["content"])
    )


def _no_heading(line: str) -> str:
    return _HEADING.sub(r"\1\\\2", line)


def _fenced(text: str) -> str:
    longest = max((len(run) for run in re.findall(r"`{3,}", text)), default=2)
    fence = "`" * (longest + 1)
    return f"{fence}\n{text}\n{fence}"


def _call_name(call: dict[str, Any]) -> str:
    return str(call.get("name") or (call.get("function") or {}).get("name") or "tool")


def _arguments(call: dict[str, Any]) -> str:
    arguments = call.get("arguments", (call.get("function") or {}).get("arguments", {}))
    if isinstance(arguments, str):
        return arguments
    return json.dumps(arguments, ensure_ascii=False)


def _line(text: str) -> str:
    return " ".join(str(text).split())


def _time(at: int) -> str:
    return datetime.fromtimestamp(at / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
