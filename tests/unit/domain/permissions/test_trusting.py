"""Permissions that loosen a project file wait until it is trusted."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.domain.project_file import ProjectFile
from holdfast.domain.trust import compare

ASK, DENY, ALLOW = ({"tool": "shell", "effect": effect} for effect in ("ask", "deny", "allow"))


def file(*permissions: dict[str, Any], **subagents: Any) -> ProjectFile:
    primary = {"permissions": list(permissions), "subagents": subagents}
    return ProjectFile.model_validate({"project": "rules", "primary": primary})


@pytest.mark.parametrize(
    ("wanted", "trusted", "in_force"),
    [
        ([], [ASK], [ASK]),
        ([], [DENY], [DENY]),
        ([ALLOW], [], []),
        ([ASK], [DENY], [ASK, DENY]),
        ([ALLOW, ASK], [ASK], [ASK]),
    ],
)
def test_a_missing_rule_and_a_new_one_that_allows_wait(
    wanted: list[Any], trusted: list[Any], in_force: list[Any]
) -> None:
    found = compare(file(*wanted), file(*trusted))
    assert found.areas == ["permissions"]
    assert found.in_force == file(*in_force)


@pytest.mark.parametrize(
    ("wanted", "trusted"),
    [([ASK], []), ([DENY], []), ([DENY, ASK], [ASK]), ([], [ALLOW]), ([ASK, ALLOW], [ALLOW])],
)
def test_more_rules_that_ask_or_deny_and_fewer_that_allow_ask_nobody(
    wanted: list[Any], trusted: list[Any]
) -> None:
    found = compare(file(*wanted), file(*trusted))
    assert (found.areas, found.in_force) == ([], file(*wanted))


def test_a_new_subagent_without_rules_loosens_nothing_and_one_that_allows_does() -> None:
    assert compare(file(DENY, helper={}), file(DENY)).areas == []
    found = compare(file(DENY, helper={"permissions": [ALLOW]}), file(DENY, ALLOW))
    assert found.areas == ["permissions"]


def test_the_guard_against_loops_is_switched_off_by_trust_alone() -> None:
    off = ProjectFile.model_validate({"project": "rules", "primary": {"stuck_guard": False}})
    found = compare(off, None)
    assert (found.areas, found.in_force.primary.stuck_guard) == (["limits"], True)
    assert compare(off, off).areas == []
