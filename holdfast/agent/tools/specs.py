"""Every tool that a model may call, each with its arguments. A new tool is added here."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Field

from holdfast.agent.tools.arguments import Arguments
from holdfast.agent.tools.tool_spec import OUTPUT_BYTES_MAX, Need, ToolSpec, by_argument
from holdfast.domain.memory import DEFAULT_LIMIT as MEMORY_HITS
from holdfast.domain.memory import MAX_LIMIT as MEMORY_HITS_MAX
from holdfast.domain.tools import CHECKPOINT_TOOL, ISSUE_TOOL, SHELL_TOOL, TODO_TOOL, ToolKind

READ_LINES = 2000
SHELL_TIMEOUT_S = 120
SHELL_TIMEOUT_S_MAX = 3600
SEARCH_HITS = 10
PathText = Annotated[str, Field(min_length=1, max_length=4096)]
Task = Annotated[str, Field(min_length=1, max_length=500)]
Glob = Annotated[str, Field(min_length=1, max_length=1000)]


class ShellArguments(Arguments):
    command: str = Field(
        min_length=1, max_length=100_000, description="The command line, given to a POSIX shell."
    )
    timeout_s: float | None = Field(
        default=None,
        gt=0,
        le=SHELL_TIMEOUT_S_MAX,
        description=f"Kill the command after this many seconds (default {SHELL_TIMEOUT_S}).",
    )
    working_directory: PathText | None = Field(
        default=None, description="A folder inside the working directory to run in."
    )
    terminal: bool | None = Field(
        default=None, description="Run it in a terminal the operator can see."
    )


SHELL = ToolSpec(
    name=SHELL_TOOL,
    description=(
        "Run a shell command in the session's working directory and wait for it. Answers the exit "
        "code and the last 32 KiB of its output. Set `terminal` for programs that need a terminal."
    ),
    arguments=ShellArguments,
    kind=ToolKind.EXECUTE,
    summarised_by=by_argument("command"),
    # The terminal host keys the process by the tool call's id: a repeat attaches, it never re-runs.
    repeat_safe=True,
    # The command runs elsewhere, for up to an hour: workers come and go without its doing.
    deaths_max=10,
    default_timeout_s=SHELL_TIMEOUT_S,
    # It keeps the last 32 KiB itself; what JSON adds to them must not cut its end and its code.
    output_bytes_max=2 * OUTPUT_BYTES_MAX,
)


class FileArguments(Arguments):
    path: PathText = Field(description="The file, relative to the working directory.")


class ReadFileArguments(FileArguments):
    offset: int = Field(
        default=1,
        ge=1,
        le=1_000_000_000,
        description="The first line to read; lines count from 1.",
    )
    limit: int = Field(
        default=READ_LINES,
        ge=1,
        le=10_000,
        description=f"How many lines to read (default {READ_LINES}).",
    )


READ_FILE = ToolSpec(
    name="read_file",
    description=(
        f"Read a text file. Answers its lines with line numbers, {READ_LINES} at a time by default."
    ),
    arguments=ReadFileArguments,
    kind=ToolKind.READ,
    summarised_by=by_argument("path"),
    read_only=True,
    parallel=True,
    repeat_safe=True,
)


class WriteFileArguments(FileArguments):
    content: str = Field(max_length=5_000_000, description="The whole new content.")


WRITE_FILE = ToolSpec(
    name="write_file",
    description="Create a file or replace all of its content. Missing folders are made.",
    arguments=WriteFileArguments,
    kind=ToolKind.EDIT,
    summarised_by=by_argument("path"),
    repeat_safe=True,
)


class EditFileArguments(FileArguments):
    old_string: str = Field(
        min_length=1,
        max_length=1_000_000,
        description="The exact text to replace, with enough context to be unique.",
    )
    new_string: str = Field(max_length=1_000_000, description="The text to put there.")
    replace_all: bool = Field(default=False, description="Replace every match (default false).")


EDIT_FILE = ToolSpec(
    name="edit_file",
    description=(
        "Replace text in a file. `old_string` must match exactly, and only once unless "
        "`replace_all`."
    ),
    arguments=EditFileArguments,
    kind=ToolKind.EDIT,
    summarised_by=by_argument("path"),
    # A second run would not find the old text, or replace inside the new one.
    repeat_safe=False,
)


class ListFilesArguments(Arguments):
    path: PathText = Field(
        default=".",
        description="The folder (default: the working directory).",
    )
    glob: Glob | None = Field(
        default=None,
        description="A pattern such as `*.py` or `src/**/test_*.py`.",
    )


LIST_FILES = ToolSpec(
    name="list_files",
    description="List files. Without `glob` one folder, with it every match below that folder.",
    arguments=ListFilesArguments,
    kind=ToolKind.READ,
    summarised_by=lambda given: given.get("glob") or given.get("path") or ".",
    read_only=True,
    parallel=True,
    repeat_safe=True,
)


class GrepArguments(Arguments):
    pattern: str = Field(
        min_length=1, max_length=2000, description="The regular expression, matched line by line."
    )
    path: PathText = Field(
        default=".",
        description="The folder or file to search (default: the working directory).",
    )
    glob: Glob | None = Field(
        default=None,
        description="Only files whose path matches, such as `*.py`.",
    )


GREP = ToolSpec(
    name="grep",
    description=(
        "Search file contents for a regular expression. Answers matching lines as path:line:text."
    ),
    arguments=GrepArguments,
    kind=ToolKind.READ,
    summarised_by=by_argument("pattern"),
    read_only=True,
    parallel=True,
    repeat_safe=True,
)


class CheckpointArguments(Arguments):
    reason: str = Field(
        min_length=1, max_length=2000, description="Why you pause; the operator reads this."
    )


CHECKPOINT = ToolSpec(
    name=CHECKPOINT_TOOL,
    description=(
        "Pause the session so that the operator can look, correct and resume. Use it before "
        "something that cannot be undone, or when you need a decision."
    ),
    arguments=CheckpointArguments,
    kind=ToolKind.OTHER,
    summarised_by=by_argument("reason"),
    on_host=False,
)


class TodoOperation(Arguments):
    op: Literal["init", "start", "done", "rm", "drop", "append", "note"] = Field(
        description=(
            "init replaces the list by `items`; append adds; start, done, rm, drop and note act on "
            "the task with this `text`."
        )
    )
    text: Task | None = Field(default=None, description="The task, by its exact text.")
    items: list[Annotated[Task, Field(description="A task.")]] | None = Field(
        default=None, max_length=200, description="The tasks, for init and append."
    )
    note: str | None = Field(
        default=None,
        min_length=1,
        max_length=2000,
        description="A note to add to the task, for note.",
    )


class TodoArguments(Arguments):
    ops: list[TodoOperation] = Field(
        min_length=1, max_length=100, description="What to do, in order."
    )


def _operations(given: Mapping[str, Any]) -> str:
    ops = given.get("ops")
    known = [op for op in ops if isinstance(op, dict)] if isinstance(ops, list) else []
    return ", ".join(str(op.get("op", "?")) for op in known[:5])


TODO = ToolSpec(
    name=TODO_TOOL,
    description=(
        "Keep the todo list of the bound issue. Tasks are named by their text; at most one is in "
        "progress, and the first pending one is promoted when none is."
    ),
    arguments=TodoArguments,
    kind=ToolKind.OTHER,
    summarised_by=_operations,
    needs_issue=True,
    on_host=False,
)


class IssueArguments(Arguments):
    op: Literal["get", "transition", "comment"] = Field(description="What to do.")
    status: str | None = Field(
        default=None,
        min_length=1,
        max_length=40,
        description="The new status, for transition; `resolved` closes the work.",
    )
    body: str | None = Field(
        default=None,
        min_length=1,
        max_length=16_384,
        description="The comment, or why the status changes.",
    )


ISSUE = ToolSpec(
    name=ISSUE_TOOL,
    description="Read the bound issue, comment on it, or ask for a change of its status.",
    arguments=IssueArguments,
    kind=ToolKind.OTHER,
    summarised_by=by_argument("op"),
    needs_issue=True,
    on_host=False,
)


class SubagentArguments(Arguments):
    name: str = Field(min_length=1, max_length=64, description="The subagent's name.")
    prompt: str = Field(
        min_length=1,
        max_length=100_000,
        description="The whole task: the subagent sees nothing else of this conversation.",
    )


SUBAGENT = ToolSpec(
    name="subagent",
    description=(
        "Give a task to one of your subagents and wait for its answer. Call several at once to "
        "have them work side by side (at most 8)."
    ),
    arguments=SubagentArguments,
    kind=ToolKind.OTHER,
    summarised_by=by_argument("name"),
    parallel=True,
    # Its child workflow is named after the tool call's id, so a repeat finds the one that runs.
    repeat_safe=True,
    needs=Need.SUBAGENTS,
    on_host=False,
)


class SessionSearchArguments(Arguments):
    query: str = Field(min_length=1, max_length=1000, description="What to look for.")
    limit: int = Field(
        default=SEARCH_HITS, ge=1, le=50, description=f"How many hits (default {SEARCH_HITS})."
    )


SESSION_SEARCH = ToolSpec(
    name="session_search",
    description=(
        "Search the operator's earlier sessions. Words are matched together; quotes, OR and "
        "parentheses work."
    ),
    arguments=SessionSearchArguments,
    kind=ToolKind.READ,
    summarised_by=by_argument("query"),
    read_only=True,
    parallel=True,
    repeat_safe=True,
    on_host=False,
)


class MemorySearchArguments(Arguments):
    query: str = Field(
        min_length=1, max_length=4000, description="What to remember, in your own words."
    )
    limit: int | None = Field(
        default=None,
        ge=1,
        le=MEMORY_HITS_MAX,
        description=f"How many hits (default {MEMORY_HITS}, or as the project says).",
    )


MEMORY_SEARCH = ToolSpec(
    name="memory_search",
    description=(
        "Search your memory: notes of this project in MEMORY.md and memory/, found by meaning and "
        "by words. Use it before you answer questions about earlier decisions, people, dates or "
        "preferences. Answers paths with line numbers and the text there."
    ),
    arguments=MemorySearchArguments,
    kind=ToolKind.READ,
    summarised_by=by_argument("query"),
    # Not read-only: it may bring the index up to date before it searches.
    repeat_safe=True,
    needs=Need.MEMORY,
)

# In the order in which they are offered.
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
