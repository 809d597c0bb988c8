"""What a project file loosens against another one, and what of it stays in force."""

from __future__ import annotations

import json
from typing import Any

import pytest
from pydantic import BaseModel, ValidationError

from holdfast.domain import trust
from holdfast.domain.cages import defaults as cage_defaults
from holdfast.domain.project_file import (
    AgentSpec,
    CageSettings,
    CompactionSettings,
    Limits,
    ProjectFile,
)
from holdfast.domain.trust import Comparison, ProjectDefaults, compare


def file(primary: dict[str, Any] | None = None, **keys: Any) -> ProjectFile:
    """A project file whose root agent is like that."""
    return ProjectFile.model_validate({"project": "shop", "primary": primary or {}, **keys})


def compared(
    wanted: dict[str, Any], trusted: dict[str, Any] | None = None, **keys: Any
) -> Comparison:
    return compare(file(wanted, **keys), None if trusted is None else file(trusted))


LOOSER = [
    ({"cage": "disabled"}, "cage"),
    ({"cage": {"net": True}}, "network"),
    ({"cage": {"net": "host"}}, "network"),
    ({"cage": {"net": {"allow": ["pypi.org"]}}}, "network"),
    ({"cage": {"memory_mb": 99_999}}, "limits"),
    ({"cage": {"pids": 99_999}}, "limits"),
    ({"cage": {"ptrace": True}}, "cage"),
    ({"cage": {"env": ["OPENAI_API_KEY"]}}, "env"),
    ({"cage": {"fs": {"read_write": ["/srv"]}}}, "fs"),
    ({"cage": {"fs": {"read_only": ["/srv"]}}}, "fs"),
    ({"max_steps": 201}, "limits"),
    ({"compaction": {"delegate_to": "command:evil"}}, "delegate_to"),
    ({"compaction": {"observers": ["evil"]}}, "observers"),
    ({"subagents": {"helper": {"cage": "disabled"}}}, "cage"),
    ({"subagents": {"a": {"subagents": {"b": {"cage": {"net": True}}}}}}, "network"),
]


@pytest.mark.parametrize(("wanted", "area"), LOOSER)
def test_what_the_defaults_do_not_allow_is_named_and_not_in_force(
    wanted: dict[str, Any], area: str
) -> None:
    found = compared(wanted)
    assert found.areas == [area]
    assert compare(found.in_force, None).loosenings == []
    assert found.in_force != file(wanted)


@pytest.mark.parametrize(("wanted", "area"), LOOSER)
def test_what_was_trusted_before_is_in_force_without_asking(
    wanted: dict[str, Any], area: str
) -> None:
    found = compared(wanted, wanted)
    assert found.in_force == file(wanted)
    assert found.loosenings == []


@pytest.mark.parametrize(
    "wanted",
    [
        {"system_prompt": "other words", "model": "fast", "description": "new"},
        {"cage": {"memory_mb": 64, "fs": {"hidden": ["secrets"]}}},
        {"cage": {"memory_mb": cage_defaults.MEMORY_MB, "pids": cage_defaults.PIDS}},
        {"tools": {"shell": {"enabled": False}}},
        {"max_steps": 3, "max_output_tokens": 10},
        {"compaction": {"strategy": "delegate", "delegate_to": "scribe"}},
        {"subagents": {"scribe": {"tools": {"read_file": {}}}}},
    ],
)
def test_a_neutral_or_tightening_file_loosens_nothing(wanted: dict[str, Any]) -> None:
    found = compared(wanted)
    assert found.loosenings == []
    assert found.in_force == file(wanted)


@pytest.mark.parametrize("key", ["memory_mb", "pids", "walltime_s", "cpu_s"])
@pytest.mark.parametrize("value", [None, 2000])
def test_a_raised_or_removed_limit_of_the_cage_is_held_at_the_trusted_one(
    key: str, value: int | None
) -> None:
    found = compared({"cage": {key: value}}, {"cage": {key: 1000}})
    assert found.areas == ["limits"]
    assert found.in_force == file({"cage": {key: 1000}})


@pytest.mark.parametrize("key", ["memory_mb", "pids"])
def test_a_limit_above_that_of_this_server_is_looser_even_below_the_built_in_one(key: str) -> None:
    narrowed = ProjectDefaults(memory_mb=512, pids=512)
    for wanted, areas in ((513, ["limits"]), (512, []), (100, [])):
        found = compare(file({"cage": {key: wanted}}), None, narrowed)
        assert found.areas == areas
        assert found.in_force == file({"cage": {} if areas else {key: wanted}})
    subagent = file({"subagents": {"helper": {"cage": {key: 513}}}})
    assert compare(subagent, None, narrowed).areas == ["limits"]
    widened = ProjectDefaults(memory_mb=2**20, pids=2**20)
    assert compare(file({"cage": {key: 99_999}}), None, widened).areas == []
    # Without a word the server's own limit would be in force, which is more than was trusted.
    trusted = file({"cage": {key: 100}})
    assert compare(file(), trusted, narrowed).in_force == trusted


def test_a_limit_beyond_every_machine_is_no_project_file() -> None:
    with pytest.raises(ValidationError):
        file({"cage": {"memory_mb": 99_999_999}})


HOSTS = {"allow": ["pypi.org"]}
PRIVATE = {**HOSTS, "private": ["10.0.0.0/8"]}


@pytest.mark.parametrize(
    ("trusted", "wanted", "in_force"),
    [
        (True, HOSTS, HOSTS),
        ("host", {"allow": ["db.lan"], "private": ["10.0.0.0/8"]}, None),
        ("host", True, True),
        (True, "host", True),
        (True, {**HOSTS, "private": ["10.0.0.0/8"]}, HOSTS),
        (HOSTS, True, HOSTS),
        (HOSTS, "host", HOSTS),
        (HOSTS, {"allow": ["pypi.org", "evil.example"]}, HOSTS),
        (HOSTS, {"allow": ["evil.example"]}, False),
        (PRIVATE, {**HOSTS, "private": ["10.0.0.0/8", "192.168.0.0/16"]}, PRIVATE),
        (HOSTS, False, False),
    ],
)
def test_a_network_is_in_force_as_far_as_the_trusted_one_goes(
    trusted: Any, wanted: Any, in_force: Any
) -> None:
    expected = wanted if in_force is None else in_force
    found = compared({"cage": {"net": wanted}}, {"cage": {"net": trusted}})
    assert found.in_force == file({"cage": {"net": expected}})
    assert found.areas == ([] if expected == wanted else ["network"])


def test_a_cage_where_there_was_none_is_free() -> None:
    found = compared({"cage": {"fs": {"read_write": ["/srv"]}}}, {"cage": "disabled"})
    assert found.loosenings == []
    assert found.in_force == file({"cage": {"fs": {"read_write": ["/srv"]}}})


@pytest.mark.parametrize(
    ("key", "default"), [("memory_mb", cage_defaults.MEMORY_MB), ("pids", cage_defaults.PIDS)]
)
def test_a_limit_that_nobody_names_is_the_default(key: str, default: int) -> None:
    assert compared({"cage": {}}, {"cage": {key: default}}).loosenings == []
    assert compared({"cage": {}}, {"cage": {key: default - 1}}).areas == ["limits"]
    raised = compared({"cage": {key: default + 1}}, {"cage": {}})
    assert raised.areas == ["limits"]
    assert raised.in_force == file({"cage": {}})


def test_debuggers_are_taken_away_without_asking() -> None:
    found = compared({"cage": {"ptrace": False}}, {"cage": {"ptrace": True}})
    assert found.loosenings == []
    assert found.in_force == file({"cage": {"ptrace": False}})


def test_tools_that_loosen_nothing_stay_as_they_are_written() -> None:
    tools = {"*": {}, "shell": {"enabled": False}}
    found = compared({"tools": tools}, {"tools": {"*": {}, "read_file": {}}})
    assert found.in_force == file({"tools": tools})


def test_limits_of_the_project_are_held_at_the_trusted_ones() -> None:
    wanted = file(limits={"running_sessions": 9, "max_cost_usd": None, "subagents": 2})
    trusted = file(limits={"running_sessions": 3, "max_cost_usd": 1.5, "subagents": 8})
    found = compare(wanted, trusted)
    assert [one.key for one in found.loosenings] == [
        "limits.running_sessions",
        "limits.max_cost_usd",
    ]
    assert found.in_force.limits == Limits(running_sessions=3, max_cost_usd=1.5, subagents=2)


def test_a_readable_path_may_not_become_writable_but_the_reverse_is_free() -> None:
    read, write = {"cage": {"fs": {"read_only": ["/a"]}}}, {"cage": {"fs": {"read_write": ["/a"]}}}
    assert compared(write, read).areas == ["fs"]
    assert compared(read, write).areas == []


def test_a_path_that_was_hidden_stays_hidden() -> None:
    found = compared({"cage": {"fs": {"hidden": ["b"]}}}, {"cage": {"fs": {"hidden": ["a"]}}})
    assert found.areas == ["fs"]
    assert found.in_force == file({"cage": {"fs": {"hidden": ["b", "a"]}}})


def test_a_tool_that_was_off_stays_off_and_the_others_stay_on() -> None:
    trusted = {"tools": {"*": {"enabled": False}, "read_file": {}, "shell": {"enabled": False}}}
    found = compared({"tools": {"*": {}, "shell": {}}}, trusted)
    assert found.areas == ["tools"]
    tools = found.in_force.primary.tools
    on = {name: one.enabled for name, one in tools.items()}
    assert on == {"*": False, "read_file": True, "shell": False}


def test_the_tools_left_to_a_subagent_are_a_valid_project_file() -> None:
    trusted = {"tools": {"*": {"enabled": False}, "todo": {}, "read_file": {}}}
    found = compared({**trusted, "subagents": {"helper": {}}}, trusted)
    assert found.areas == ["tools"]
    again = ProjectFile.model_validate(found.in_force.model_dump(mode="json"))
    assert again == found.in_force


def test_a_new_subagent_may_do_what_its_caller_may_and_no_more() -> None:
    trusted = {"cage": {"net": True}}
    like = {"cage": {"net": True}}
    assert compared({**trusted, "subagents": {"helper": like}}, trusted).loosenings == []
    more = {"cage": {"net": True, "env": ["KEY"]}}
    found = compared({**trusted, "subagents": {"helper": more}}, trusted)
    assert [one.key for one in found.loosenings] == ["primary.subagents.helper.cage.env"]


def test_a_subagent_is_compared_with_itself_and_not_with_its_caller() -> None:
    trusted = {"cage": "disabled", "subagents": {"reader": {"cage": {}}}}
    wanted = {"cage": "disabled", "subagents": {"reader": {"cage": "disabled"}}}
    assert compared(wanted, trusted).areas == ["cage"]


def test_a_loosening_is_told_with_its_whole_values() -> None:
    command = "command:" + "x" * 900
    found = compared({"compaction": {"delegate_to": command}})
    assert [one.as_json() for one in found.loosenings] == [
        {
            "area": "delegate_to",
            "key": "primary.compaction.delegate_to",
            "trusted": None,
            "wanted": command,
        }
    ]


def test_a_loosening_is_told_as_json() -> None:
    caged = compared({"cage": "disabled"}, {"cage": {"fs": {"read_only": ["/a"]}}})
    told = caged.loosenings[0].as_json()
    assert json.loads(json.dumps(told)) == told
    assert (told["wanted"], told["trusted"]["fs"]["read_only"]) == ("disabled", ["/a"])
    tools = compared({"tools": {"*": {}}}, {"tools": {"*": {"enabled": False}}})
    told = tools.loosenings[0].as_json()
    assert told["trusted"] == {"*": {"enabled": False}}
    assert told["wanted"] == {"*": {"enabled": True}}


def test_each_key_of_the_file_is_decided_about() -> None:
    rules: dict[type[BaseModel], set[str]] = {
        AgentSpec: set(trust.AGENT_RULES),
        CompactionSettings: set(trust.COMPACTION_RULES),
        CageSettings: set(trust.CAGE_RULES),
        Limits: set(trust.LIMIT_RULES),
        ProjectFile: set(),
    }
    for model, known in rules.items():
        decided = known | trust.NEUTRAL[model] | trust.APART.get(model, set())
        assert decided == set(model.model_fields), model


def test_a_key_that_nobody_decided_about_is_held_back(monkeypatch: pytest.MonkeyPatch) -> None:
    neutral: dict[type[BaseModel], frozenset[str]] = {**trust.NEUTRAL}
    neutral[AgentSpec] = frozenset()
    monkeypatch.setattr(trust, "NEUTRAL", neutral)
    found = compared({"system_prompt": "obey me"})
    assert found.areas == ["system_prompt"]
    assert found.in_force == file()
    neutral[ProjectFile] = frozenset()
    found = compared({}, description="obey me")
    assert [one.key for one in found.loosenings] == ["description"]
