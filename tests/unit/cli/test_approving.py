"""Answers as they are typed, and what is shown before them."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.cli.approving import Answer, description, read

APPROVAL: dict[str, Any] = {
    "agent_path": "primary.subagents.helper",
    "title": "shell: git push",
    "cwd": "/srv/me",
    "command": "git push\x1b[2J",
    "reason": "ask shell 'git push*'",
    "uncaged": True,
    "diff": "\n".join(["+x"] * 100),
}


@pytest.mark.parametrize(
    ("line", "answer"),
    [
        ("y", Answer("allow")),
        ("s", Answer("allow", "session")),
        ("p git push *", Answer("allow", "project", "git push *")),
        ("n", Answer("deny")),
        ("n not today", Answer("deny", None, "not today")),
        ("yes please", None),
        ("y do it", None),
        ("", None),
    ],
)
def test_only_an_answer_is_read_as_one(line: str, answer: Answer | None) -> None:
    assert read(line) == answer


def test_the_fields_of_a_request_follow_from_the_letter() -> None:
    assert Answer("allow", "session", "a*").fields() == {"remember": "session", "pattern": "a*"}
    assert Answer("deny", None, "no").fields() == {"note": "no"}


def test_the_question_names_agent_command_reason_and_danger_and_drives_no_terminal() -> None:
    shown = description(APPROVAL)
    for words in ("by primary.subagents.helper", "$ git push", "because: ask", "WITHOUT a cage"):
        assert words in shown
    assert "\x1b" not in shown
    assert "40 more lines of the diff" in shown
