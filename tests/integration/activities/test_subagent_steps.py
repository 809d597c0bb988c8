"""The beginning and the end of a subagent, as one transaction each, over both databases."""

from __future__ import annotations

from pathlib import Path

import pytest

from activities.subagents import NO_ANSWER, SubagentActivities
from holdfast.domain.ids import new_id
from holdfast.domain.subagent_steps import SubagentEnd, SubagentStart
from holdfast.storage.database.engine import Db
from holdfast.storage.database.opening import OpenStore
from holdfast.storage.database.tables import ToolCallRow
from holdfast.storage.log import events
from holdfast.storage.moves import checkpoints
from holdfast.storage.moves.checkpoint_snapshots import CheckpointShown, checkpoint_json
from holdfast.storage.sessions import invocations, messages, tool_calls
from tests.support.step_runner import StepRunner

PROJECT = """
version: 1
project: team
limits: {subagents: 2}
primary:
  model: scripted:echo
  subagents:
    helper: {max_steps: 7, cage: {walltime_s: 9}}
"""
PATH = "primary.subagents.helper"


class Team:
    """A run whose agent calls subagents."""

    def __init__(self, store: OpenStore, folder: Path) -> None:
        self.shop = StepRunner(store, folder, PROJECT)
        self.store = store
        self.steps = SubagentActivities(store)
        self.run_id = self.shop.begin("work")

    def call(self) -> SubagentStart:
        """A stored call of the helper."""
        row = ToolCallRow(
            id=new_id(),
            run_id=self.run_id,
            session_id=self.shop.session_id,
            caller="primary",
            provider_call_id=new_id(),
            tool_name="subagent",
            input={"name": "helper", "prompt": "do this"},
        )
        self.store.write(lambda db: tool_calls.add(db, [row]))
        return SubagentStart(
            session_id=self.shop.session_id,
            run_id=self.run_id,
            tool_call_id=row.id,
            name="helper",
            parent_path="primary",
            invocation_id=new_id(),
        )

    def say(self, start: SubagentStart, content: str) -> None:
        self.shop.say("subagent", content, agent_path=PATH, invocation_id=start.invocation_id)

    def result(self, start: SubagentStart) -> ToolCallRow:
        found = self.store.read(lambda db: tool_calls.find(db, start.tool_call_id))
        assert found is not None
        return found

    def state(self, start: SubagentStart) -> str:
        found = self.store.read(lambda db: invocations.find(db, start.invocation_id))
        assert found is not None
        return found.state

    def kinds(self) -> list[str]:
        def read(db: Db) -> list[str]:
            found = events.after(db, self.shop.session_id, 0, limit=500)
            return [one.kind for one in found if one.kind.startswith("subagent.")]

        return self.store.read(read)


def end(start: SubagentStart, state: str, error: str | None = None) -> SubagentEnd:
    return SubagentEnd(
        session_id=start.session_id,
        run_id=start.run_id,
        tool_call_id=start.tool_call_id,
        invocation_id=start.invocation_id,
        name=start.name,
        state=state,
        error=error,
    )


@pytest.fixture
def team(sqlite_store: OpenStore, tmp_path: Path) -> Team:
    return Team(sqlite_store, tmp_path / "p")


@pytest.mark.req("K-104", "F-036", "H-046")
async def test_a_subagent_begins_with_its_prompt_and_answers_its_call(
    either_store: OpenStore, tmp_path: Path
) -> None:
    team = Team(either_store, tmp_path / "p")
    start = team.call()
    begun = await team.steps.begin_subagent(start)
    again = await team.steps.begin_subagent(start)
    assert begun == again
    assert (begun.agent_path, begun.max_steps, begun.walltime_s) == (PATH, 7, 9)
    seen = either_store.read(
        lambda db: messages.history(
            db, start.session_id, agent_path=PATH, invocation_id=start.invocation_id
        )
    )
    assert [(one.role, one.content) for one in seen] == [("operator", "do this")]
    assert team.state(start) == "running"
    team.say(start, "thinking")
    team.say(start, "the answer")

    result = await team.steps.finish_subagent(end(start, "done"))
    late = await team.steps.finish_subagent(end(start, "killed"))

    assert (result.state, late.state) == ("done", "done")
    assert team.state(start) == "done"
    assert (team.result(start).state, team.result(start).output["result"]) == ("done", "the answer")
    assert team.kinds() == ["subagent.started", "subagent.finished"]


@pytest.mark.req("K-060", "K-062")
async def test_a_checkpoint_shows_the_cage_of_a_caged_subagent(
    either_store: OpenStore, tmp_path: Path
) -> None:
    team = Team(either_store, tmp_path / "p")
    start = team.call()
    await team.steps.begin_subagent(start)

    def pause(db: Db) -> CheckpointShown:
        made = checkpoints.create(
            db,
            either_store.blobs,
            checkpoint_id=new_id(),
            session_id=start.session_id,
            created_by="operator",
            prompts={},
            run_id=team.run_id,
        )
        return checkpoint_json(db, made)

    (subagent,) = either_store.write(pause)["active_subagents"]
    assert (subagent["name"], subagent["cage_id"]) == ("helper", start.invocation_id)
    assert subagent["cage"] == {
        "id": start.invocation_id,
        "enabled": True,
        "kind": "bubblewrap",
        "network": False,
        "limits": {"memory_mb": None, "pids": None, "cpu_s": None, "walltime_s": 9},
    }


@pytest.mark.req("K-119")
async def test_a_run_has_a_limited_number_of_places(team: Team) -> None:
    first, second, third = team.call(), team.call(), team.call()
    assert not (await team.steps.begin_subagent(first)).busy
    assert not (await team.steps.begin_subagent(second)).busy
    assert (await team.steps.begin_subagent(third)).busy
    await team.steps.finish_subagent(end(first, "done"))
    assert team.result(first).output["result"] == NO_ANSWER
    assert not (await team.steps.begin_subagent(third)).busy


@pytest.mark.req("K-137")
async def test_a_killed_subagent_leaves_its_partial_output(team: Team) -> None:
    start = team.call()
    await team.steps.begin_subagent(start)
    team.say(start, "half of it")
    words = "Subagent helper exceeded walltime limit."

    result = await team.steps.finish_subagent(end(start, "killed", words))

    assert result.limit_exceeded == words
    assert team.result(start).state == "failed"
    assert team.result(start).output["result"] == f"{words}\n\nIts partial output:\nhalf of it"


async def test_a_stopped_subagent_leaves_its_call_to_the_end_of_the_run(team: Team) -> None:
    start, other = team.call(), team.call()
    await team.steps.begin_subagent(start)
    await team.steps.begin_subagent(other)
    stopped = await team.steps.finish_subagent(end(start, "killed"))
    assert (stopped.state, stopped.limit_exceeded) == ("killed", None)
    assert team.result(start).state == "running"
    assert team.store.write(lambda db: invocations.kill_open(db, team.run_id)) == 1
    assert team.state(other) == "killed"


async def test_a_long_answer_is_kept_whole_and_cut_for_the_caller(team: Team) -> None:
    start = team.call()
    await team.steps.begin_subagent(start)
    team.say(start, "word " * 10_000)
    await team.steps.finish_subagent(end(start, "done"))
    found = team.result(start)
    assert found.output_ref is not None
    assert len(team.store.blobs.read(found.output_ref)) == 50_000
    assert "[cut: 50000 bytes" in found.output["result"]
