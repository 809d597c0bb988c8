"""System prompts, where they may be read from, and the notices beside them."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.agent.conversation import Turn
from holdfast.agent.prompts import (
    DEFAULT_PROMPT,
    TodoItem,
    has_todo_result,
    prompt_text,
    system_prompt,
    todo_reminder,
)
from holdfast.agent.tools.specs import ALL, SHELL
from holdfast.domain.errors import DslInvalid


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    (folder / ".holdfast" / "prompts").mkdir(parents=True)
    (folder / "AGENTS.md").write_text("Be careful.\n")
    (folder / ".holdfast" / "prompts" / "review.md").write_text("Review.")
    (tmp_path / "secret.md").write_text("secret")
    return folder


@pytest.mark.parametrize(
    ("prompt", "expected"),
    [
        (None, DEFAULT_PROMPT),
        ("  ", DEFAULT_PROMPT),
        ("You are terse.", "You are terse."),
        ("project:/AGENTS.md", "Be careful."),
        ("config:/prompts/review.md", "Review."),
        ("project:/ is a scheme\nand this is text", "project:/ is a scheme\nand this is text"),
    ],
)
def test_a_prompt_is_text_or_a_file_of_the_project(
    project: Path, prompt: str | None, expected: str
) -> None:
    assert prompt_text(prompt, project) == expected


@pytest.mark.parametrize(
    "prompt",
    [
        "project:/../secret.md",
        "project://etc/../../secret.md",
        "config:/../../secret.md",
        "project:/link.md",
        "project:/missing.md",
        "project:/",
        "project:/a\0b",
    ],
)
def test_a_prompt_path_that_leaves_the_project_or_is_no_file_is_refused(
    project: Path, prompt: str
) -> None:
    (project / "link.md").symlink_to(project.parent / "secret.md")
    with pytest.raises(DslInvalid):
        prompt_text(prompt, project)


def test_a_prompt_file_has_a_largest_size(project: Path) -> None:
    (project / "big.md").write_bytes(b"x" * (512 * 1024 + 1))
    with pytest.raises(DslInvalid, match="larger"):
        prompt_text("project:/big.md", project)


def test_the_system_prompt_names_the_place_the_tools_and_the_subagents(project: Path) -> None:
    prompt = system_prompt(
        "Hi.",
        project=project,
        working_directory=project,
        tools=ALL,
        subagents={"tester": "Runs tests."},
    )
    assert prompt.startswith("Hi.")
    assert str(project) in prompt
    assert "shell, read_file" in prompt
    assert "- tester: Runs tests." in prompt


def test_the_system_prompt_is_the_same_each_time(project: Path) -> None:
    first, second = (
        system_prompt(None, project=project, working_directory=project, tools=[SHELL])
        for _ in range(2)
    )
    assert first == second
    assert "grep" not in first


@pytest.mark.req("K-118")
def test_the_reminder_lists_open_todos_as_a_system_turn() -> None:
    reminder = todo_reminder([TodoItem("Write tests", "in_progress"), TodoItem("Ship")])
    assert reminder is not None
    assert reminder.role == "system"
    assert reminder.text.splitlines()[1:] == ["- [/] Write tests", "- [ ] Ship"]


@pytest.mark.req("K-118")
def test_without_open_todos_there_is_no_reminder() -> None:
    assert todo_reminder([]) is None


def test_a_long_todo_list_is_cut() -> None:
    reminder = todo_reminder([TodoItem(f"task {n}") for n in range(80)])
    assert reminder is not None
    assert reminder.text.endswith("and 30 more")


@pytest.mark.req("K-118")
def test_a_todo_result_in_the_turn_before_is_seen() -> None:
    shell = Turn("tool", "ok", tool_call_id="a", tool_name="shell")
    todo = Turn("tool", "ok", tool_call_id="b", tool_name="todo")
    assert has_todo_result([Turn("user", "x"), todo, shell])
    assert not has_todo_result([todo, Turn("assistant", "done")])
    assert not has_todo_result([shell])
