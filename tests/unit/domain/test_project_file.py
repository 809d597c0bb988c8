"""The project file: its defaults, its bounds, and what it refuses."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from holdfast.domain.project_file import ProjectFile, subagent_path


def file(**fields: Any) -> ProjectFile:
    return ProjectFile.model_validate({"project": "demo-project", **fields})


@pytest.mark.req("K-119")
def test_a_name_is_enough() -> None:
    made = file()
    assert made.version == 1
    assert made.primary.model == "default"
    assert made.limits.running_sessions == 4
    assert made.limits.subagents == 8
    assert made.on_crash == "resume"
    assert made.primary.compaction.upper == 0.85


@pytest.mark.parametrize(
    "wrong",
    [
        {"project": "Not A Name"},
        {"project": "x"},
        {"version": 2},
        {"surprise": 1},
        {"on_crash": "shrug"},
        {"primary": {"surprise": 1}},
        {"primary": {"max_steps": 0}},
        {"primary": {"model": ""}},
        {"primary": {"cage": "off"}},
        {"primary": {"cage": {"net": {"allow": ["a b"]}}}},
        {"primary": {"compaction": {"upper": 0.5, "lower": 0.6}}},
        {"limits": {"running_sessions": 0}},
        {"limits": {"subagents": 9}},
        {"limits": {"max_cost_usd": 0}},
        {"primary": {"subagents": {"bad name": {}}}},
        {"primary": {"subagents": {"helper": {"tools": {"todo": {"enabled": True}}}}}},
    ],
    ids=str,
)
def test_what_makes_no_sense_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        file(**wrong)


def test_nothing_changes_once_it_is_read() -> None:
    made = file()
    with pytest.raises(ValidationError):
        made.on_crash = "fail"  # type: ignore[misc]


def test_agents_are_found_by_their_path() -> None:
    nested = {"helper": {"model": "a:b", "subagents": {"scout": {"model": "c:d"}}}}
    made = file(primary={"subagents": nested})
    helper = subagent_path("primary", "helper")
    assert helper == "primary.subagents.helper"
    assert made.agent("primary") is made.primary
    assert made.agent(helper).model == "a:b"
    assert made.agent(subagent_path(helper, "scout")).model == "c:d"
    for path in ("primary.subagents.nobody", "primary.others.helper"):
        with pytest.raises(KeyError):
            made.agent(path)
