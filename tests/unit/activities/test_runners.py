"""Every tool has one runner, which takes the arguments of its spec and keeps to its facts."""

from __future__ import annotations

import re
from typing import Any, get_type_hints

import pytest

from activities.tools.memory import MemoryTool
from activities.tools.requests import Tool, ToolRequest
from activities.tools.runners import all_tools
from activities.tools.shell import Shell, spawn_request
from activities.tools.tool_calls import CHANGING_TOOLS, READ_ONLY_TOOLS
from holdfast.agent.tools.files import FILE_TOOLS
from holdfast.agent.tools.specs import ALL, CHECKPOINT, SHELL, SUBAGENT, ShellArguments
from holdfast.agent.tools.tool_spec import ToolSpec
from holdfast.domain.project_file import AgentSpec, ProjectFile
from holdfast.settings.config import Config
from holdfast.storage.database.rows import fresh
from holdfast.storage.database.tables import SessionRow, ToolCallRow
from holdfast.storage.projects.owners import Owner
from holdfast.terminal.client import SpawnRequest


def shell_call(**arguments: Any) -> SpawnRequest:
    call = fresh(ToolCallRow, id="call", run_id="run", tool_name=SHELL.name, input=arguments)
    file = ProjectFile(project="some")
    session = fresh(SessionRow, id="session", working_directory="/")
    request = ToolRequest(call, session, file, AgentSpec(), None, False)
    parsed = ShellArguments.model_validate(arguments)
    config = Config.model_validate({"terminals": {"scrollback_lines": 700}})
    return spawn_request(request, parsed, "", owner=Owner("alice", "/"), config=config)


def test_a_shell_command_gets_the_time_that_the_model_was_told() -> None:
    told = SHELL.parameters["properties"]["timeout_s"]
    number = re.search(r"default (\d+)", told["description"])
    assert number is not None
    assert shell_call(command="true").timeout_s == float(number[1])
    assert shell_call(command="true", timeout_s=None).timeout_s == float(number[1])
    longest = told["maximum"]
    assert shell_call(command="true", timeout_s=longest).timeout_s == longest


@pytest.mark.req("K-049")
def test_a_terminal_of_a_tool_call_keeps_as_many_lines_as_configured() -> None:
    assert shell_call(command="true", terminal=True).scrollback_lines == 700


def tools() -> list[Tool]:
    unused: Any = None  # nothing is called here
    return all_tools(unused, Shell(unused, unused, unused), MemoryTool(unused, unused, unused))


def test_every_tool_is_run_by_an_activity_or_by_the_workflow() -> None:
    bound = [tool.spec for tool in tools()]
    assert len(bound) == len(set(bound))
    assert set(bound) | {CHECKPOINT, SUBAGENT} == set(ALL)
    assert not set(bound) & {CHECKPOINT, SUBAGENT}


def test_every_runner_takes_the_arguments_of_its_spec() -> None:
    functions: dict[ToolSpec, Any] = {tool.spec: tool.run for tool in tools()}
    functions.update(FILE_TOOLS)
    for spec, function in functions.items():
        assert get_type_hints(function)["arguments"] is spec.arguments


def test_the_sets_of_tools_are_derived_from_their_facts() -> None:
    assert {"read_file", "list_files", "grep", "session_search"} == READ_ONLY_TOOLS
    assert {"shell", "write_file", "edit_file"} == CHANGING_TOOLS
    alone = {spec.name for spec in ALL if not spec.parallel}
    assert alone >= CHANGING_TOOLS | {"checkpoint", "todo", "issue"}
