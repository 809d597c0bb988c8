"""The system prompt of an agent, and the notices and reminders that go beside it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from holdfast.agent.conversation import Turn
from holdfast.agent.tools import confined, specs
from holdfast.agent.tools.outcome import ToolProblem
from holdfast.agent.tools.tool_spec import ToolSpec
from holdfast.domain.errors import DslInvalid

PROMPT_BYTES_MAX = 512 * 1024
REMINDER_ITEMS_MAX = 50
CONFIG_FOLDER = ".holdfast"

DEFAULT_PROMPT = """\
You are a capable agent who works for an operator in their project folder.
Do what the operator asks, completely and carefully, and then say briefly what you did.
Look before you change: read the files that matter. Prefer small, checked steps, and verify your
work by running it. When something fails, say what failed and what you tried. Never invent results.
If a step cannot be undone or the request is unclear, ask or make a checkpoint first."""


@dataclass(frozen=True)
class TodoItem:
    """One open task of the bound issue."""

    text: str
    status: str = "pending"


def system_prompt(
    prompt: str | None,
    *,
    project: Path,
    working_directory: Path,
    tools: Sequence[ToolSpec] = (),
    subagents: Mapping[str, str] | None = None,
) -> str:
    """The whole system prompt: the agent's own text, then where it works and with what.

    It holds no date and nothing else that changes, so that providers can cache it.
    """
    parts = [prompt_text(prompt, project), environment_note(working_directory)]
    if tools:
        parts.append(tool_guidance(tools))
    if subagents and any(spec.name == specs.SUBAGENT.name for spec in tools):
        lines = [f"- {name}: {text}" for name, text in sorted(subagents.items())]
        parts.append("Your subagents:\n" + "\n".join(lines))
    return "\n\n".join(parts)


def prompt_text(prompt: str | None, project: Path) -> str:
    """The agent's own prompt: the default, the text itself, or the file that it names.

    `project:/…` is below the project, `config:/…` below its `.holdfast` folder.
    """
    if prompt is None or not prompt.strip():
        return DEFAULT_PROMPT
    for scheme, folder in (("project:/", ""), ("config:/", f"{CONFIG_FOLDER}/")):
        if prompt.startswith(scheme) and "\n" not in prompt:
            relative = prompt.removeprefix(scheme).strip().lstrip("/")
            return _read_inside(prompt, folder + relative, project)
    return prompt


def _read_inside(name: str, path: str, project: Path) -> str:
    try:
        with confined.opened(project) as place:
            _, content = confined.read(place, path)
    except ToolProblem as problem:
        raise DslInvalid(f"system_prompt {name}: {problem}", {"path": name}) from problem
    if len(content) > PROMPT_BYTES_MAX:
        raise DslInvalid(f"system_prompt {name}: larger than 512 KiB", {"path": name})
    return content.decode("utf-8", errors="replace").strip() or DEFAULT_PROMPT


def environment_note(working_directory: Path) -> str:
    """Where the agent works."""
    return (
        f"Your working directory is {working_directory}. File paths are relative to it, and file "
        "tools cannot leave it. The session is durable: if the machine stops, your work goes on "
        "where it was, and a tool call that was cut off says so."
    )


def tool_guidance(tools: Sequence[ToolSpec]) -> str:
    """How to use the tools that are offered, in a few lines."""
    names = {spec.name for spec in tools}
    lines = ["Tools: " + ", ".join(spec.name for spec in tools) + "."]
    if {specs.READ_FILE.name, specs.EDIT_FILE.name} <= names:
        lines.append(
            "Read a file before you edit it; prefer edit_file over write_file for changes."
        )
    if {specs.SHELL.name, specs.GREP.name} <= names:
        lines.append("Prefer grep, list_files and read_file over shell for looking at files.")
    if specs.SHELL.name in names:
        lines.append(
            "Shell commands must end by themselves; a long output is cut, keeping its end."
        )
    if specs.CHECKPOINT.name in names:
        lines.append("Use checkpoint to hand a decision to the operator.")
    if specs.TODO.name in names:
        lines.append("For work of several steps on a bound issue, keep the todo list up to date.")
    return "\n".join(lines)


def todo_reminder(items: Sequence[TodoItem]) -> Turn | None:
    """K-118: the open todos as a system turn that is sent but never stored; None when all is done.

    The caller leaves it out when the turn before it holds a `todo` result.
    """
    if not items:
        return None
    marks = {"in_progress": "[/]"}
    lines = [f"- {marks.get(item.status, '[ ]')} {item.text}" for item in items]
    if len(lines) > REMINDER_ITEMS_MAX:
        rest = len(lines) - REMINDER_ITEMS_MAX
        lines = [*lines[:REMINDER_ITEMS_MAX], f"- and {rest} more"]
    head = "Reminder: these todos of the bound issue are still open ([/] is in progress):"
    return Turn("system", "\n".join([head, *lines]))


def has_todo_result(turns: Sequence[Turn]) -> bool:
    """Whether the newest turns are tool results with one of `todo` among them (K-118)."""
    for turn in reversed(turns):
        if turn.role != "tool":
            return False
        if turn.tool_name == specs.TODO.name:
            return True
    return False
