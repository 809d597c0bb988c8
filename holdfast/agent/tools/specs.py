"""The tools a model is offered: names, descriptions, argument schemas, and who may call them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Protocol

Schema = dict[str, Any]

PATH_CHARS_MAX = 4096
SHELL_TIMEOUT_S_MAX = 3600
SUBAGENT_PROMPT_CHARS_MAX = 100_000
UNBOUND = (
    "No issue is bound to this session, so there is nothing to keep todos or a status on. "
    "Ask the operator to bind an issue to this session, then try again."
)


class Switch(Protocol):
    """The part of a project file's tool entry that matters here."""

    @property
    def enabled(self) -> bool:
        """Whether the agent may use the tool."""


@dataclass(frozen=True)
class ToolSpec:
    """One tool; `repeat_safe` says that running it twice after a crash does no harm."""

    name: str
    description: str
    parameters: Schema
    root_only: bool = False
    repeat_safe: bool = False


def _object(required: list[str], **properties: Schema) -> Schema:
    return {
        "type": "object",
        "properties": properties,
        "required": required,
        "additionalProperties": False,
    }


def _text(description: str, chars_max: int = PATH_CHARS_MAX, *, chars_min: int = 1) -> Schema:
    return {
        "type": "string",
        "description": description,
        "minLength": chars_min,
        "maxLength": chars_max,
    }


def _whole(description: str, least: int, most: int) -> Schema:
    return {"type": "integer", "description": description, "minimum": least, "maximum": most}


def _choice(description: str, *values: str) -> Schema:
    return {"type": "string", "description": description, "enum": list(values)}


SHELL = ToolSpec(
    "shell",
    "Run a shell command in the session's working directory and wait for it. Answers the exit "
    "code and the last 32 KiB of its output. Set `terminal` for programs that need a terminal.",
    _object(
        ["command"],
        command=_text("The command line, given to a POSIX shell.", 100_000),
        timeout_s={
            "type": "number",
            "description": "Kill the command after this many seconds (default 120).",
            "exclusiveMinimum": 0,
            "maximum": SHELL_TIMEOUT_S_MAX,
        },
        working_directory=_text("A folder inside the working directory to run in."),
        terminal={"type": "boolean", "description": "Run it in a terminal the operator can see."},
    ),
    # The terminal host keys the process by the tool call's id: a repeat attaches, it never re-runs.
    repeat_safe=True,
)
READ_FILE = ToolSpec(
    "read_file",
    "Read a text file. Answers its lines with line numbers, 2000 at a time by default.",
    _object(
        ["path"],
        path=_text("The file, relative to the working directory."),
        offset=_whole("The first line to read; lines count from 1.", 1, 1_000_000_000),
        limit=_whole("How many lines to read (default 2000).", 1, 10_000),
    ),
    repeat_safe=True,
)
WRITE_FILE = ToolSpec(
    "write_file",
    "Create a file or replace all of its content. Missing folders are made.",
    _object(
        ["path", "content"],
        path=_text("The file, relative to the working directory."),
        content=_text("The whole new content.", 5_000_000, chars_min=0),
    ),
    repeat_safe=True,
)
EDIT_FILE = ToolSpec(
    "edit_file",
    "Replace text in a file. `old_string` must match exactly, and only once unless `replace_all`.",
    _object(
        ["path", "old_string", "new_string"],
        path=_text("The file, relative to the working directory."),
        old_string=_text("The exact text to replace, with enough context to be unique.", 1_000_000),
        new_string=_text("The text to put there.", 1_000_000, chars_min=0),
        replace_all={"type": "boolean", "description": "Replace every match (default false)."},
    ),
    # A second run would not find the old text, or replace inside the new one.
    repeat_safe=False,
)
LIST_FILES = ToolSpec(
    "list_files",
    "List files. Without `glob` one folder, with it every match below that folder.",
    _object(
        [],
        path=_text("The folder (default: the working directory)."),
        glob=_text("A pattern such as `*.py` or `src/**/test_*.py`.", 1000),
    ),
    repeat_safe=True,
)
GREP = ToolSpec(
    "grep",
    "Search file contents for a regular expression. Answers matching lines as path:line:text.",
    _object(
        ["pattern"],
        pattern=_text("The regular expression, matched line by line.", 2000),
        path=_text("The folder or file to search (default: the working directory)."),
        glob=_text("Only files whose path matches, such as `*.py`.", 1000),
    ),
    repeat_safe=True,
)
CHECKPOINT = ToolSpec(
    "checkpoint",
    "Pause the session so that the operator can look, correct and resume. Use it before something "
    "that cannot be undone, or when you need a decision.",
    _object(["reason"], reason=_text("Why you pause; the operator reads this.", 2000)),
)
_TODO_OP = _object(
    ["op"],
    op=_choice(
        "init replaces the list by `items`; append adds; start, done, rm, drop and note act on "
        "the task with this `text`.",
        "init", "start", "done", "rm", "drop", "append", "note",
    ),
    text=_text("The task, by its exact text.", 500),
    items={
        "type": "array",
        "description": "The tasks, for init and append.",
        "items": _text("A task.", 500),
        "maxItems": 200,
    },
    note=_text("A note to add to the task, for note.", 2000),
)  # fmt: skip
TODO = ToolSpec(
    "todo",
    "Keep the todo list of the bound issue. Tasks are named by their text; at most one is in "
    "progress, and the first pending one is promoted when none is.",
    _object(
        ["ops"],
        ops={
            "type": "array",
            "description": "What to do, in order.",
            "items": _TODO_OP,
            "minItems": 1,
            "maxItems": 100,
        },
    ),
    root_only=True,
)
ISSUE = ToolSpec(
    "issue",
    "Read the bound issue, comment on it, or ask for a change of its status.",
    _object(
        ["op"],
        op=_choice("What to do.", "get", "transition", "comment"),
        status=_text("The new status, for transition; `resolved` closes the work.", 40),
        body=_text("The comment, or why the status changes.", 16_384),
    ),
    root_only=True,
)
SUBAGENT = ToolSpec(
    "subagent",
    "Give a task to one of your subagents and wait for its answer. Call several at once to have "
    "them work side by side (at most 8).",
    _object(
        ["name", "prompt"],
        name=_text("The subagent's name.", 64),
        prompt=_text(
            "The whole task: the subagent sees nothing else of this conversation.",
            SUBAGENT_PROMPT_CHARS_MAX,
        ),
    ),
    # Its child workflow is named after the tool call's id, so a repeat finds the one that runs.
    repeat_safe=True,
)
SESSION_SEARCH = ToolSpec(
    "session_search",
    "Search the operator's earlier sessions. Words are matched together; quotes, OR and "
    "parentheses work.",
    _object(
        ["query"],
        query=_text("What to look for.", 1000),
        limit=_whole("How many hits (default 10).", 1, 50),
    ),
    repeat_safe=True,
)
MEMORY_SEARCH = ToolSpec(
    "memory_search",
    "Search your memory: notes of this project in MEMORY.md and memory/, found by meaning and by "
    "words. Use it before you answer questions about earlier decisions, people, dates or "
    "preferences. Answers paths with line numbers and the text there.",
    _object(
        ["query"],
        query=_text("What to remember, in your own words.", 4000),
        limit=_whole("How many hits (default 6).", 1, 50),
    ),
    repeat_safe=True,
)

ALL = (
    SHELL,
    READ_FILE,
    WRITE_FILE,
    EDIT_FILE,
    LIST_FILES,
    GREP,
    CHECKPOINT,
    TODO,
    ISSUE,
    SUBAGENT,
    SESSION_SEARCH,
    MEMORY_SEARCH,
)
BY_NAME = {spec.name: spec for spec in ALL}
NEEDS_ISSUE = frozenset({TODO.name, ISSUE.name})


def enabled(agent_tools: Mapping[str, Switch], name: str) -> bool:
    """Whether the agent's tool map switches `name` on: by its own entry, else by `"*"`."""
    switch = agent_tools.get(name, agent_tools.get("*"))
    return switch is not None and switch.enabled


def offered(
    agent_tools: Mapping[str, Switch],
    *,
    root: bool,
    has_subagents: bool,
    bound_issue: bool,
    remembers: bool,
) -> list[ToolSpec]:
    """The tools to tell the model about, always in the same order so that prompts stay cached."""
    return [
        replace(spec, description=f"{spec.description} {UNBOUND}")
        if spec.name in NEEDS_ISSUE and not bound_issue
        else spec
        for spec in ALL
        if _available(
            spec, agent_tools, root=root, has_subagents=has_subagents, remembers=remembers
        )
    ]


def refusal_at_dispatch(
    name: str,
    agent_tools: Mapping[str, Switch],
    *,
    root: bool,
    has_subagents: bool,
    bound_issue: bool,
    remembers: bool,
) -> str | None:
    """Why this call may not run, in words for the model; None when it may."""
    spec = BY_NAME.get(name)
    if spec is None:
        return f"There is no tool {name[:80]!r}. Use one of the tools you were offered."
    if spec.root_only and not root:
        return f"The tool {name!r} is for the root agent only; tell your caller what you need."
    if not _available(
        spec, agent_tools, root=root, has_subagents=has_subagents, remembers=remembers
    ):
        return f"The tool {name!r} is disabled for this agent."
    if name in NEEDS_ISSUE and not bound_issue:
        return UNBOUND
    return None


def _available(
    spec: ToolSpec,
    agent_tools: Mapping[str, Switch],
    *,
    root: bool,
    has_subagents: bool,
    remembers: bool,
) -> bool:
    if spec.root_only and not root:
        return False
    if (spec is SUBAGENT and not has_subagents) or (spec is MEMORY_SEARCH and not remembers):
        return False
    return enabled(agent_tools, spec.name)
