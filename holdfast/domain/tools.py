"""What the workflow, storage and the project file know of tools: kinds, and the names they need."""

from __future__ import annotations

from enum import StrEnum


class ToolKind(StrEnum):
    """What a call of the tool does; permissions may be given by it."""

    READ = "read"
    EDIT = "edit"
    EXECUTE = "execute"
    FETCH = "fetch"
    OTHER = "other"


SHELL_TOOL = "shell"
# A call of one is claimed for a host before its process is started, so that it never runs twice.
PROCESS_TOOLS = frozenset({SHELL_TOOL})
# The workflow answers it by a pause; storage looks for its call among those of a checkpoint.
CHECKPOINT_TOOL = "checkpoint"
# They change what the whole session is bound to, so a project file may not give them to subagents.
TODO_TOOL, ISSUE_TOOL = "todo", "issue"
ROOT_ONLY_TOOLS = (TODO_TOOL, ISSUE_TOOL)
