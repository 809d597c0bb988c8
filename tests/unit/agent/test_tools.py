"""Which tools a model is offered, what is refused at dispatch, and how arguments are checked."""

from __future__ import annotations

from typing import Any

import jsonschema_rs
import pytest

from holdfast.agent.conversation import ToolCall
from holdfast.agent.tools.arguments import problem_with, violations
from holdfast.agent.tools.specs import (
    ALL,
    BY_NAME,
    GREP,
    READ_FILE,
    SHELL,
    TODO,
    UNBOUND,
    offered,
    refusal_at_dispatch,
)
from holdfast.agent.tools.summaries import summary
from holdfast.domain.project_file import ROOT_ONLY_TOOLS, ToolSwitch

EVERY = {"*": ToolSwitch()}
ARGUMENTS: dict[str, list[str]] = {
    "shell": ["command", "timeout_s", "working_directory", "terminal"],
    "read_file": ["path", "offset", "limit"],
    "write_file": ["path", "content"],
    "edit_file": ["path", "old_string", "new_string", "replace_all"],
    "list_files": ["path", "glob"],
    "grep": ["pattern", "path", "glob"],
    "checkpoint": ["reason"],
    "todo": ["ops"],
    "issue": ["op", "status", "body"],
    "subagent": ["name", "prompt"],
    "session_search": ["query", "limit"],
    "memory_search": ["query", "limit"],
}
USUAL = {"root": True, "has_subagents": True, "bound_issue": True, "remembers": True}


def names(tools: dict[str, ToolSwitch], **where: bool) -> list[str]:
    return [spec.name for spec in offered(tools, **{**USUAL, **where})]


def refused(name: str, tools: dict[str, ToolSwitch], **where: bool) -> str | None:
    return refusal_at_dispatch(name, tools, **{**USUAL, **where})


def test_names_and_arguments_are_those_of_the_contract() -> None:
    assert {spec.name: list(spec.parameters["properties"]) for spec in ALL} == ARGUMENTS


def test_every_schema_is_valid_json_schema() -> None:
    for spec in ALL:
        assert jsonschema_rs.meta.is_valid(spec.parameters)


def test_a_star_offers_everything_and_an_empty_map_nothing() -> None:
    assert names(EVERY) == list(ARGUMENTS)
    assert names({}) == []


def test_a_tools_own_entry_goes_before_the_star() -> None:
    assert "shell" not in names({**EVERY, "shell": ToolSwitch(enabled=False)})
    assert names({"*": ToolSwitch(enabled=False), "grep": ToolSwitch()}) == ["grep"]


def test_root_only_tools_are_not_for_subagents() -> None:
    assert {spec.name for spec in ALL if spec.root_only} == set(ROOT_ONLY_TOOLS)
    assert not set(names(EVERY, root=False)) & set(ROOT_ONLY_TOOLS)
    assert "root agent only" in (refused("todo", EVERY, root=False) or "")


def test_the_subagent_tool_needs_subagents() -> None:
    assert "subagent" not in names(EVERY, has_subagents=False)
    assert refused("subagent", EVERY, has_subagents=False)


def test_memory_is_searched_only_where_there_is_one() -> None:
    assert "memory_search" in names(EVERY)
    assert "memory_search" not in names(EVERY, remembers=False)
    assert "disabled" in (refused("memory_search", EVERY, remembers=False) or "")


def test_a_disabled_or_unknown_tool_is_refused_at_dispatch() -> None:
    assert "disabled" in (refused("shell", {"shell": ToolSwitch(enabled=False)}) or "")
    assert "no tool" in (refused("remember", EVERY) or "")
    assert refused("shell", EVERY) is None


@pytest.mark.req("K-115")
def test_without_a_bound_issue_todo_tells_the_agent_to_ask_for_one() -> None:
    assert refused("todo", EVERY, bound_issue=False) == UNBOUND
    assert "Ask the operator to bind" in UNBOUND
    told = {spec.name: spec.description for spec in offered(
        EVERY, **{**USUAL, "bound_issue": False}
    )}  # fmt: skip
    assert UNBOUND in told["todo"]


def test_a_repeat_of_an_edit_is_not_safe_but_of_a_look_is() -> None:
    assert not BY_NAME["edit_file"].repeat_safe
    assert not BY_NAME["checkpoint"].repeat_safe
    assert all(BY_NAME[name].repeat_safe for name in ("read_file", "grep", "list_files", "shell"))


@pytest.mark.parametrize(
    ("tool", "arguments", "problem"),
    [
        (SHELL, {}, "command is missing"),
        (SHELL, {"command": ""}, "command must not be empty"),
        (SHELL, {"command": 5}, "command must be a string, not int"),
        (SHELL, {"command": "ls", "cwd": "/"}, "cwd is unknown"),
        (SHELL, {"command": "ls", "timeout_s": 0}, "timeout_s must be more than 0"),
        (SHELL, {"command": "ls", "terminal": "yes"}, "terminal must be a boolean"),
        (READ_FILE, {"path": "a", "offset": 0}, "offset must be at least 1"),
        (READ_FILE, {"path": "a", "limit": 1e9}, "limit must be at most"),
        (READ_FILE, {"path": "a", "limit": True}, "limit must be an integer"),
        (GREP, {"pattern": "x" * 3000}, "longer than 2000"),
        (TODO, {"ops": []}, "ops needs at least 1"),
        (TODO, {"ops": [{"op": "dance"}]}, "ops[0].op must be one of init"),
        (TODO, {"ops": [{"op": "init", "items": ["a"] * 201}]}, "at most 200 items"),
        (TODO, {"ops": "init"}, "ops must be an array"),
    ],
)
def test_arguments_that_do_not_fit_are_explained(
    tool: Any, arguments: dict[str, Any], problem: str
) -> None:
    assert problem in (problem_with(tool, ToolCall("a", tool.name, arguments)) or "")
    assert not jsonschema_rs.is_valid(tool.parameters, arguments)


def test_arguments_that_fit_have_no_problem() -> None:
    fits = {"command": "ls", "timeout_s": 2.5, "terminal": True, "working_directory": None}
    assert problem_with(SHELL, ToolCall("a", "shell", fits)) is None


def test_a_note_of_invalid_arguments_is_passed_on() -> None:
    call = ToolCall("a", "shell", {}, invalid_arguments="not valid JSON")
    assert "not valid JSON" in (problem_with(SHELL, call) or "")


def test_many_problems_are_cut() -> None:
    assert len(violations(SHELL.parameters, {f"x{n}": 1 for n in range(50)})) == 10


@pytest.mark.parametrize(
    ("name", "arguments", "line"),
    [
        ("shell", {"command": "make\n  test"}, "shell: make test"),
        ("read_file", {"path": "a.py"}, "read_file: a.py"),
        ("list_files", {}, "list_files: ."),
        ("list_files", {"glob": "*.py"}, "list_files: *.py"),
        ("todo", {"ops": [{"op": "init"}, {"op": "start"}]}, "todo: init, start"),
        ("todo", {"ops": 5}, "todo"),
        ("subagent", {"name": "tester", "prompt": "Run it."}, "subagent: tester"),
        ("unknown", {"a": 1}, "unknown"),
        ("shell", {"command": "x" * 200}, "shell: " + "x" * 72 + "…"),
    ],
)
def test_a_call_has_a_short_line_for_people(
    name: str, arguments: dict[str, Any], line: str
) -> None:
    assert summary(name, arguments) == line
