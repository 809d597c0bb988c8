"""Every tool that an activity runs, bound to what runs it. A new tool is bound here."""

from __future__ import annotations

import asyncio
from pathlib import Path

from activities.tools.issues import run_issue, run_todo
from activities.tools.memory import MemoryTool
from activities.tools.requests import Tool, ToolRequest
from activities.tools.search import SearchTool
from activities.tools.shell import Shell
from holdfast.agent.tools import specs
from holdfast.agent.tools.arguments import Arguments
from holdfast.agent.tools.files import FILE_TOOLS, FileTool, run_file_tool
from holdfast.agent.tools.outcome import ToolOutcome
from holdfast.agent.tools.tool_spec import ToolSpec
from holdfast.storage.database.opening import OpenStore


def all_tools(store: OpenStore, shell: Shell, memory: MemoryTool) -> list[Tool]:
    """The tools of a worker. `checkpoint` and `subagent` are not among them: the workflow's own."""

    async def todo(request: ToolRequest, arguments: specs.TodoArguments) -> ToolOutcome:
        return await run_todo(store, request.session.id, arguments)

    async def issue(request: ToolRequest, arguments: specs.IssueArguments) -> ToolOutcome:
        return await run_issue(store, request.session.id, arguments)

    return [
        Tool(specs.SHELL, shell.run),
        *(file_tool(spec, function) for spec, function in FILE_TOOLS),
        Tool(specs.TODO, todo),
        Tool(specs.ISSUE, issue),
        Tool(specs.SESSION_SEARCH, SearchTool(store).run),
        Tool(specs.MEMORY_SEARCH, memory.run),
    ]


def file_tool(spec: ToolSpec, function: FileTool) -> Tool:
    """A tool that works on the session's files, in a thread since disks block."""

    async def run(request: ToolRequest, arguments: Arguments) -> ToolOutcome:
        folder = Path(request.session.working_directory)
        return await asyncio.to_thread(run_file_tool, function, arguments, folder)

    return Tool(spec, run)
