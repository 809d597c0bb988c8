"""Which tools a model is offered, what is refused at dispatch, and how arguments are checked."""

from __future__ import annotations

from typing import Any

import jsonschema_rs
import pytest

from holdfast.agent.conversation import ToolCall
from holdfast.agent.tools.offering import UNBOUND, Caller, offered, refusal_at_dispatch
from holdfast.agent.tools.outcome import ToolProblem
from holdfast.agent.tools.specs import (
    ALL,
    BY_NAME,
    GREP,
    ISSUE,
    LIST_FILES,
    READ_FILE,
    SHELL,
    TODO,
    WRITE_FILE,
)
from holdfast.agent.tools.summaries import summary
from holdfast.agent.tools.tool_spec import ToolSpec
from holdfast.domain.project_file import ToolSwitch
from holdfast.domain.tools import ROOT_ONLY_TOOLS

EVERY = {"*": ToolSwitch()}
# API.md §8; what may be left out has a question mark.
ARGUMENTS: dict[str, list[str]] = {
    "shell": ["command", "timeout_s?", "working_directory?", "terminal?"],
    "read_file": ["path", "offset?", "limit?"],
    "write_file": ["path", "content"],
    "edit_file": ["path", "old_string", "new_string", "replace_all?"],
    "list_files": ["path?", "glob?"],
    "grep": ["pattern", "path?", "glob?"],
    "checkpoint": ["reason"],
    "todo": ["ops"],
    "issue": ["op", "status?", "body?"],
    "subagent": ["name", "prompt"],
    "session_search": ["query", "limit?"],
    "memory_search": ["query", "limit?"],
}
TODO_OP = ["op", "text?", "items?", "note?"]
USUAL = {"root": True, "has_subagents": True, "bound_issue": True, "remembers": True}


def names(tools: dict[str, ToolSwitch], **where: bool) -> list[str]:
    return [spec.name for spec in offered(Caller(tools=tools, **{**USUAL, **where}))]


def arguments_of(schema: dict[str, Any]) -> list[str]:
    needed = schema["required"]
    return [name if name in needed else f"{name}?" for name in schema["properties"]]


def refused(name: str, tools: dict[str, ToolSwitch], **where: bool) -> str | None:
    return refusal_at_dispatch(name, Caller(tools=tools, **{**USUAL, **where}))


def problem_with(tool: ToolSpec, arguments: dict[str, Any]) -> str:
    with pytest.raises(ToolProblem) as caught:
        tool.parse(ToolCall("a", tool.name, arguments))
    return str(caught.value)


def test_names_and_arguments_are_those_of_the_contract() -> None:
    assert {spec.name: arguments_of(spec.parameters) for spec in ALL} == ARGUMENTS
    assert arguments_of(TODO.parameters["properties"]["ops"]["items"]) == TODO_OP


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
    unbound = Caller(tools=EVERY, **{**USUAL, "bound_issue": False})
    told = {spec.name: spec.description for spec in offered(unbound)}
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
        (SHELL, {"command": None}, "command must be a string, not NoneType"),
        (SHELL, {"command": "ls", "timeout_s": 0}, "timeout_s must be more than 0"),
        (SHELL, {"command": "ls", "timeout_s": 3601}, "timeout_s must be at most 3600"),
        (SHELL, {"command": "ls", "timeout_s": True}, "timeout_s must be a number, not bool"),
        (SHELL, {"command": "ls", "timeout_s": "5"}, "timeout_s must be a number, not str"),
        (SHELL, {"command": "ls", "terminal": "yes"}, "terminal must be a boolean"),
        (READ_FILE, {"path": "a", "offset": 0}, "offset must be at least 1"),
        (READ_FILE, {"path": "a", "limit": 1e9}, "limit must be at most"),
        (READ_FILE, {"path": "a", "limit": True}, "limit must be an integer"),
        (READ_FILE, {"path": "a", "limit": 1.5}, "limit must be an integer, not float"),
        (READ_FILE, {"path": "a", "limit": "5"}, "limit must be an integer, not str"),
        (GREP, {"pattern": "x" * 3000}, "longer than 2000"),
        (TODO, {"ops": []}, "ops needs at least 1"),
        (TODO, {"ops": [{"op": "dance"}]}, "ops[0].op must be one of init"),
        (TODO, {"ops": [{"op": "init", "items": ["a"] * 201}]}, "at most 200 items"),
        (TODO, {"ops": "init"}, "ops must be an array"),
        (TODO, {"ops": ["init"]}, "ops[0] must be an object, not str"),
        (TODO, {"ops": [{"op": "init", "item": "a"}]}, "ops[0].item is unknown; there are: op, "),
        (ISSUE, {"op": "fly"}, "op must be one of get, transition, comment"),
    ],
)
def test_arguments_that_do_not_fit_are_explained(
    tool: ToolSpec, arguments: dict[str, Any], problem: str
) -> None:
    assert problem in problem_with(tool, arguments)
    assert not jsonschema_rs.is_valid(tool.parameters, arguments)


def test_arguments_that_fit_have_no_problem() -> None:
    fits = {"command": "ls", "timeout_s": 2.5, "terminal": True, "working_directory": None}
    parsed = SHELL.parse(ToolCall("a", SHELL.name, fits))
    assert parsed.model_dump() == fits


def test_what_is_left_out_or_null_has_its_default() -> None:
    given = {"path": "a", "offset": None}
    read = READ_FILE.parse(ToolCall("a", READ_FILE.name, given))
    assert (read.path, read.offset, read.limit) == ("a", 1, 2000)
    listed = LIST_FILES.parse(ToolCall("a", LIST_FILES.name, {"path": None, "glob": None}))
    assert (listed.path, listed.glob) == (".", None)
    noted = {"ops": [{"op": "done", "text": "a", "items": None}]}
    assert TODO.parse(ToolCall("a", TODO.name, noted)).ops[0].items is None


def test_a_float_without_a_fraction_is_an_integer() -> None:
    read = READ_FILE.parse(ToolCall("a", READ_FILE.name, {"path": "a", "limit": 20.0}))
    assert (read.limit, type(read.limit)) == (20, int)


def test_half_of_a_surrogate_pair_is_explained() -> None:
    assert "path holds half of a surrogate pair" in problem_with(
        WRITE_FILE, {"path": "\ud83d", "content": "x"}
    )


def test_a_note_of_invalid_arguments_is_passed_on() -> None:
    call = ToolCall("a", "shell", {}, invalid_arguments="not valid JSON")
    with pytest.raises(ToolProblem, match="not valid JSON"):
        SHELL.parse(call)


def test_many_problems_are_cut() -> None:
    problem = problem_with(SHELL, {f"x{n}": 1 for n in range(50)})
    assert (problem.count(" is missing"), problem.count(" is unknown")) == (1, 9)


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
