"""The exact spelling of hashed values, ids, times and names."""

from __future__ import annotations

import time

import pytest
from pydantic import ValidationError
from ulid import ULID

from holdfast.domain import clock, ids, memory_steps
from holdfast.domain.canonical import canonical
from holdfast.domain.events import HeadCreated
from holdfast.domain.lifecycle import State, allowed_actions
from holdfast.domain.memory import ChunkSettings, MemorySettings
from holdfast.domain.project_file import AgentSpec, CompactionSettings, ProjectFile


def test_a_hashed_value_is_spelled_without_spaces_and_escapes() -> None:
    value = {"b": [1, 2], "a": "ü\ud800"}
    assert canonical(value) == b'{"a":"\xc3\xbc\xed\xa0\x80","b":[1,2]}'


def test_the_clock_counts_milliseconds() -> None:
    before = time.time_ns()
    now = clock.now_ms()
    assert before // 1_000_000 <= now <= time.time_ns() // 1_000_000


def test_an_id_holds_its_time_and_eighty_random_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ids, "_last", 0)
    monkeypatch.setattr(ids, "now_ms", lambda: 1_700_000_000_000)
    monkeypatch.setattr("os.urandom", lambda size: b"\xab" * size)
    first, second = (int(ULID.from_str(ids.new_id())) for _ in range(2))
    assert first == (1_700_000_000_000 << 80) | int.from_bytes(b"\xab" * 10, "big")
    assert second == first + 1
    monkeypatch.setattr(ids, "now_ms", lambda: 1_700_000_000_001)
    assert int(ULID.from_str(ids.new_id())) >> 80 == 1_700_000_000_001


def test_the_least_id_of_a_time_sorts_between_the_times(monkeypatch: pytest.MonkeyPatch) -> None:
    made = []
    monkeypatch.setattr(ids, "_last", 0)
    for at in (999, 1000):
        monkeypatch.setattr(ids, "now_ms", lambda at=at: at)
        made.append(ids.new_id())
    assert made[0] < ids.least_id(1000) <= made[1]


def test_an_event_is_its_fields() -> None:
    assert HeadCreated(head_id="h", basis=None).data() == {"head_id": "h", "basis": None}


def test_only_a_session_that_ended_uncleanly_cannot_be_reopened() -> None:
    for state in State:
        either = allowed_actions(state), allowed_actions(state, cleanly_ended=False)
        lost = set(either[0]) - set(either[1])
        assert lost == ({"reopen"} if state is State.ENDED else set())


def test_marks_and_overlaps_lie_below_what_they_belong_to() -> None:
    with pytest.raises(ValidationError, match="lower must be less"):
        CompactionSettings(lower=0.7, upper=0.7)
    with pytest.raises(ValidationError, match="overlap must be less"):
        ChunkSettings(tokens=100, overlap=100)
    assert ChunkSettings(tokens=100, overlap=99).overlap == 99


def test_a_subagents_name_fits_into_a_path() -> None:
    for name in ("a", "a-b_c", "x" * 64):
        assert list(AgentSpec(subagents={name: AgentSpec()}).subagents) == [name]
    for name in ("", "-", "a.b", "a b", "x" * 65):
        with pytest.raises(ValidationError, match="letters, digits"):
            AgentSpec(subagents={name: AgentSpec()})


def test_a_subagent_may_switch_a_tool_of_the_root_off() -> None:
    def subagent(*, enabled: bool) -> AgentSpec:
        tools = {"issue": {"enabled": enabled}}
        return AgentSpec.model_validate({"subagents": {"helper": {"tools": tools}}})

    assert not subagent(enabled=False).subagents["helper"].tools["issue"].enabled
    with pytest.raises(ValidationError, match="root agent only"):
        subagent(enabled=True)


def test_a_project_remembers_with_its_settings_or_the_defaults() -> None:
    assert ProjectFile(project="plans").remembering == MemorySettings()
    own = MemorySettings(chunks=ChunkSettings(tokens=100))
    assert ProjectFile(project="plans", memory=own).remembering == own
    assert memory_steps.workflow_id("p") == f"{memory_steps.ID_PREFIX}p"


def test_a_path_that_names_no_agent_is_refused() -> None:
    found = ProjectFile(project="plans", primary=AgentSpec(subagents={"helper": AgentSpec()}))
    for path in ("primary.subagents.nobody", "primary.others.helper"):
        with pytest.raises(KeyError) as refused:
            found.agent(path)
        assert refused.value.args == (path,)
    with pytest.raises(ValueError, match="zip"):
        found.agent("primary.subagents")
