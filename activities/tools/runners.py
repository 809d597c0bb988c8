"""Every tool that an activity runs, bound to what runs it. A new tool is bound here."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from weakref import WeakValueDictionary

from activities.tools.issues import run_issue, run_todo
from activities.tools.memory import MemoryTool
from activities.tools.requests import Tool, ToolRequest
from activities.tools.search import SearchTool
from activities.tools.shell import Shell
from holdfast.agent.tools import confined, specs
from holdfast.agent.tools.arguments import Arguments
from holdfast.agent.tools.files import FILE_TOOLS, FileTool, run_file_tool
from holdfast.agent.tools.outcome import ToolOutcome
from holdfast.agent.tools.proposals import proposed
from holdfast.agent.tools.tool_spec import ToolSpec
from holdfast.domain.project_file import AgentSpec
from holdfast.domain.tools import ToolKind
from holdfast.folders.access import Rules
from holdfast.storage.database.opening import OpenStore

# File tools wait in threads of their own: searches of one session hold up nobody else's steps.
THREADS = 16
PER_SESSION = 2
_THREADS = ThreadPoolExecutor(THREADS, thread_name_prefix="file-tool")


def all_tools(
    store: OpenStore, shell: Shell, memory: MemoryTool, secret: Sequence[Path] = ()
) -> list[Tool]:
    """The tools of a worker. `checkpoint` and `subagent` are not among them: the workflow's own.

    No file tool ever reaches one of the `secret` places.
    """

    async def todo(request: ToolRequest, arguments: specs.TodoArguments) -> ToolOutcome:
        return await run_todo(store, request.session.id, arguments)

    async def issue(request: ToolRequest, arguments: specs.IssueArguments) -> ToolOutcome:
        return await run_issue(store, request.session.id, arguments)

    return [
        Tool(specs.SHELL, shell.run),
        *(file_tool(spec, function, secret) for spec, function in FILE_TOOLS),
        Tool(specs.TODO, todo),
        Tool(specs.ISSUE, issue),
        Tool(specs.SESSION_SEARCH, SearchTool(store).run),
        Tool(specs.MEMORY_SEARCH, memory.run),
    ]


def file_tool(spec: ToolSpec, function: FileTool, secret: Sequence[Path] = ()) -> Tool:
    """A tool that works on the session's files, in a thread since disks block."""
    turns: WeakValueDictionary[str, asyncio.Semaphore] = WeakValueDictionary()

    async def run(request: ToolRequest, arguments: Arguments) -> ToolOutcome:
        folder = Path(request.session.working_directory)
        rules = rules_of(request.agent, secret)
        turn = turns.setdefault(request.session.id, asyncio.Semaphore(PER_SESSION))
        async with turn:
            work = partial(run_file_tool, function, arguments, folder, rules)
            return await asyncio.get_running_loop().run_in_executor(_THREADS, work)

    async def diff(request: ToolRequest, arguments: Arguments) -> str | None:
        folder = Path(request.session.working_directory)

        def look() -> str | None:
            with confined.opened(folder, rules_of(request.agent, secret)) as place:
                return proposed(arguments, place)

        return await asyncio.get_running_loop().run_in_executor(_THREADS, look)

    return Tool(spec, run, diff if spec.kind is ToolKind.EDIT else None)


def rules_of(agent: AgentSpec, secret: Sequence[Path]) -> Rules:
    """What the agent's cage says about files, for tools that run outside of it."""
    always = tuple(map(str, secret))
    if agent.cage == "disabled":
        return Rules(secret=always)
    files = agent.cage.fs
    return Rules(
        hidden=tuple(files.hidden),
        read_only=tuple(files.read_only),
        read_write=tuple(files.read_write),
        secret=always,
    )
