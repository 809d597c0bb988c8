"""Subagents of a running product: at once, paused, stopped and limited together with their run."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import httpx2
import pytest

from holdfast.terminal.cages.finding import probe
from holdfast.terminal.errors import CageUnavailable
from tests.support.servers.product import Product
from tests.support.waiting import wait_for

PROJECT = """
version: 1
project: team
primary:
  model: scripted:echo
  subagents:
    helper:
      description: helps
      subagents:
        deep: {description: helps the helper}
    hasty: {description: has little time, cage: {walltime_s: 0.5}}
    greedy: {description: has little memory, cage: {memory_mb: 64}}
"""
OVER = {"done", "failed", "cancelled"}
AGENTS = ("primary", "primary.subagents.helper")
HANG = {"hang_s": 40, "say": "late"}


def script(*elements: dict[str, Any]) -> str:
    """A message that the scripted model plays."""
    return json.dumps({"script": list(elements)})


def ask(name: str, *elements: dict[str, Any]) -> dict[str, Any]:
    """A call of a subagent with a script of its own."""
    return {"call": "subagent", "arguments": {"name": name, "prompt": script(*elements)}}


def shell(command: str) -> dict[str, Any]:
    return {"call": "shell", "arguments": {"command": command}}


def cages_work() -> bool:
    """Whether this machine can limit a process's memory in a cage."""
    try:
        probe()
    except CageUnavailable:
        return False
    return True


class Team:
    """A session in a project with subagents."""

    def __init__(self, client: httpx2.Client, project: dict[str, Any]) -> None:
        self.client = client
        made = client.post(f"/projects/{project['id']}/sessions", json={})
        assert made.status_code == 201, made.text
        self.session_id: str = made.json()["id"]
        self.run_id = ""

    def send(self, *elements: dict[str, Any]) -> None:
        answer = self.client.post(
            f"/sessions/{self.session_id}/messages", json={"content": script(*elements)}
        )
        assert answer.status_code == 202, answer.text
        self.run_id = answer.json()["run"]["id"]

    def run(self) -> dict[str, Any]:
        found: dict[str, Any] = self.client.get(
            f"/sessions/{self.session_id}/runs/{self.run_id}"
        ).json()
        return found

    def session(self) -> dict[str, Any]:
        found: dict[str, Any] = self.client.get(f"/sessions/{self.session_id}").json()
        return found

    def until_over(self) -> dict[str, Any]:
        wait_for(lambda: self.run()["state"] in OVER, "the run to be over", timeout_s=120.0)
        return self.run()

    def until(self, state: str) -> dict[str, Any]:
        wait_for(lambda: self.session()["state"] == state, f"the session to be {state}")
        return self.session()

    def until_working(self, count: int) -> None:
        def working() -> bool:
            return self.states().count("running") == count

        wait_for(working, f"{count} subagents at work")

    def states(self) -> list[str]:
        return [one["state"] for one in self.run()["subagent_invocations"]]

    def results(self) -> list[str]:
        """What the root agent's tool calls answered."""
        calls = self.run()["tool_calls"]
        return [one["output"]["result"] for one in calls if one["caller"] == "primary"]


@pytest.fixture
def team(client: httpx2.Client, make_project: Callable[..., dict[str, Any]]) -> Team:
    return Team(client, make_project(PROJECT))


@pytest.mark.req("K-104", "K-119")
def test_more_than_eight_subagents_take_turns_and_all_answer(team: Team) -> None:
    calls = [
        ask("helper", shell(f"echo {number}"), {"say": f"I am {number}"}) for number in range(10)
    ]
    team.send({"calls": calls}, {"say": "all done"})

    run = team.until_over()

    assert run["state"] == "done"
    assert team.results() == [f"I am {number}" for number in range(10)]
    found = run["subagent_invocations"]
    assert team.states() == ["done"] * 10
    assert all(one["exit_code"] == 0 for one in found)
    for one in found:
        during = [
            other
            for other in found
            if other["spawned_at"] <= one["spawned_at"] < other["exited_at"]
        ]
        assert len(during) <= 8
    messages = team.client.get(f"/sessions/{team.session_id}/messages?limit=500").json()["items"]
    own = [one for one in messages if one["agent_path"] == "primary.subagents.helper"]
    assert {one["role"] for one in own} == {"operator", "subagent", "tool"}
    path = f"/sessions/{team.session_id}/messages?limit=500&format=conversation"
    seen = team.client.get(path).json()["items"]
    assert [one["role"] for one in seen] == ["user", "assistant", *["tool"] * 10, "assistant"]


def test_a_subagent_has_subagents_of_its_own(team: Team) -> None:
    inner = ask("deep", {"say": "deep words"})
    team.send(ask("helper", inner, {"say": "helper is done"}), {"say": "fine"})

    run = team.until_over()

    assert run["state"] == "done"
    paths = {one["agent_path"] for one in run["subagent_invocations"]}
    assert paths == {"primary.subagents.helper", "primary.subagents.helper.subagents.deep"}
    assert team.results() == ["helper is done"]
    outputs = [one["output"].get("result") for one in run["tool_calls"]]
    assert "deep words" in outputs


@pytest.mark.req("F-006", "F-013", "F-035")
def test_a_subagents_calls_say_so_and_name_the_messages_they_were_shown(team: Team) -> None:
    team.send(ask("helper", shell("echo one"), {"say": "helper is done"}), {"say": "fine"})
    run = team.until_over()
    path = f"/sessions/{team.session_id}"
    calls = team.client.get(f"{path}/runs/{team.run_id}/calls").json()["items"]
    messages = team.client.get(f"{path}/messages?limit=500").json()["items"]

    assert [(call["agent_path"], call["type"]) for call in calls] == [
        ("primary", "root-agent"),
        ("primary.subagents.helper", "subagent"),
        ("primary.subagents.helper", "subagent"),
        ("primary", "root-agent"),
    ]
    assert [call["request"]["kind"] for call in calls] == [call["type"] for call in calls]
    assert {call["request"]["rendered"] for call in calls} == {False}
    told = {path: [one["id"] for one in messages if one["agent_path"] == path] for path in AGENTS}
    named = [call["request"]["message_ids"] for call in calls]
    root, helper = (told[path] for path in AGENTS)
    assert named == [root[:1], helper[:1], helper[:3], root[:3]]
    assert [call["request"]["message_count"] for call in calls] == [1, 1, 3, 3]
    session = team.session()
    assert session["cache_id"] == team.session_id
    assert [call["request"]["cache"] for call in calls] == [{"id": session["cache_id"]}] * 4
    (one,) = run["subagent_invocations"]
    assert (one["type"], one["callee_session"]) == ("subagent", team.session_id)
    assert (one["caller_head_before"], one["callee_head_before"]) == (None, None)
    assert one["caller_head_after"] == one["callee_head_after"] == session["current_head"]


@pytest.mark.req("K-104")
def test_a_checkpoint_of_a_subagent_pauses_the_session_until_it_is_resumed(team: Team) -> None:
    pause = {"call": "checkpoint", "arguments": {"reason": "shall I go on?"}}
    team.send(
        {"calls": [ask("helper", pause, {"say": "went on"}), ask("helper", {"say": "other"})]},
        {"say": "fine"},
    )
    paused = team.until("paused")
    path = f"/sessions/{team.session_id}/checkpoints/{paused['current_checkpoint']}"
    point = team.client.get(path).json()
    assert (point["created_by"], point["reason"]) == ("model", "shall I go on?")

    answer = team.client.post(f"{path}/resume", json={})

    assert answer.status_code == 200, answer.text
    assert team.until_over()["state"] == "done"
    assert team.results() == ["went on", "other"]


def test_subagents_stop_with_a_pause_and_go_on_with_the_resume(team: Team) -> None:
    team.send(
        {"calls": [ask("helper", shell("sleep 5; echo slept"), {"say": "rested"})] * 2},
        {"say": "fine"},
    )
    team.until_working(2)
    made = team.client.post(f"/sessions/{team.session_id}/checkpoints", json={})
    assert made.status_code == 201, made.text
    assert team.session()["state"] == "paused"
    helpers = made.json()["active_subagents"]
    caged = {
        "enabled": True,
        "kind": "bubblewrap",
        "network": False,
        "limits": dict.fromkeys(("memory_mb", "pids", "cpu_s", "walltime_s")),
    }
    ids = [one["cage"].pop("id") for one in helpers]
    assert all(ids)
    assert len(set(ids)) == 2
    assert [one["cage"] for one in helpers] == [caged, caged]

    path = f"/sessions/{team.session_id}/checkpoints/{made.json()['id']}/resume"
    assert team.client.post(path, json={}).status_code == 200

    assert team.until_over()["state"] == "done"
    assert team.results() == ["rested", "rested"]


def test_a_cancelled_run_kills_its_subagents(team: Team) -> None:
    team.send({"calls": [ask("helper", HANG), ask("helper", shell("sleep 60"))]}, {"say": "no"})
    team.until_working(2)
    path = f"/sessions/{team.session_id}/runs/{team.run_id}/cancel"

    assert team.client.post(path).status_code == 202

    assert team.until_over()["state"] == "cancelled"
    assert team.states() == ["killed", "killed"]
    assert team.until("idle")["active_run"] is None


@pytest.mark.req("K-137")
def test_a_subagent_that_exceeds_its_walltime_alone_fails_the_run(team: Team) -> None:
    team.send(ask("hasty", HANG), {"say": "never"})

    run = team.until_over()

    assert run["state"] == "failed"
    assert run["error"]["message"] == "Subagent hasty exceeded walltime limit."
    assert team.states() == ["killed"]
    assert team.until("idle")["active_run"] is None


@pytest.mark.req("K-137")
def test_a_subagent_that_exceeds_its_walltime_beside_others_leaves_the_run_going(
    team: Team,
) -> None:
    calls = [ask("hasty", HANG), ask("helper", {"hang_s": 5, "say": "patient"})]
    team.send({"calls": calls}, {"say": "fine"})

    run = team.until_over()

    assert run["state"] == "done"
    assert sorted(team.states()) == ["done", "killed"]
    assert team.results() == ["Subagent hasty exceeded walltime limit.", "patient"]


@pytest.mark.skipif(not cages_work(), reason="this machine cannot build cages")
@pytest.mark.req("K-138")
def test_a_subagent_that_exceeds_its_memory_alone_fails_the_run(team: Team) -> None:
    eat = "head -c 400000000 /dev/zero | tail -c 300000000 > /dev/null; sleep 20"
    team.send(ask("greedy", shell(eat), {"say": "never"}), {"say": "never"})

    run = team.until_over()

    assert run["state"] == "failed", json.dumps(run["tool_calls"])[:2000]
    assert run["error"]["message"] == "Subagent greedy exceeded memory limit."
    assert team.states() == ["killed"]


@pytest.mark.skipif(not cages_work(), reason="this machine cannot build cages")
@pytest.mark.req("K-060", "K-062")
def test_a_checkpoint_shows_the_cage_of_a_subagent(team: Team) -> None:
    team.send(ask("greedy", shell("echo here; sleep 60"), {"say": "never"}), {"say": "never"})

    def begun() -> bool:
        used = team.run()["tool_calls"]
        return any(one["tool_name"] == "shell" and one["state"] == "running" for one in used)

    wait_for(begun, "its command to run")
    made = team.client.post(f"/sessions/{team.session_id}/checkpoints", json={})

    assert made.status_code == 201, made.text
    (helper,) = made.json()["active_subagents"]
    (known,) = team.run()["subagent_invocations"]
    assert known["cage_id"]
    assert helper["cage"] == {
        "id": known["cage_id"],
        "enabled": True,
        "kind": "bubblewrap",
        "network": False,
        "limits": {"memory_mb": 64, "pids": None, "cpu_s": None, "walltime_s": None},
    }
    path = f"/sessions/{team.session_id}/runs/{team.run_id}/cancel"
    assert team.client.post(path).status_code == 202
    team.until("idle")


def test_a_strange_subagent_is_refused_in_words_for_the_model(team: Team) -> None:
    team.send(ask("nobody", {"say": "x"}), {"say": "fine"})
    run = team.until_over()
    assert run["state"] == "done"
    assert run["tool_calls"][0]["state"] == "failed"
    assert run["subagent_invocations"] == []


@pytest.mark.slow
@pytest.mark.timeout(400)
@pytest.mark.req("K-104", "K-140")
def test_eight_subagents_survive_the_death_of_the_worker_and_run_each_command_once(
    team: Team, product: Product, client: httpx2.Client
) -> None:
    calls = [
        ask("helper", shell(f"echo {number} >> log; sleep 6; echo slept"), {"say": f"{number}"})
        for number in range(8)
    ]
    team.send({"calls": calls}, {"say": "fine"})
    folder = team.session()["working_directory"]

    def begun() -> int:
        found = client.get(f"/sessions/{team.session_id}/runs/{team.run_id}").json()
        return sum(one["tool_name"] == "shell" for one in found["tool_calls"])

    wait_for(lambda: begun() == 8, "eight commands")
    product.kill("worker")

    assert team.until_over()["state"] == "done"
    assert team.results() == [str(number) for number in range(8)]
    with open(f"{folder}/log", encoding="utf-8") as log:  # noqa: PTH123
        assert sorted(log.read().split()) == [str(number) for number in range(8)]
