"""Long work in a running product: compaction on its own and by hand, its review, and issues."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import httpx2
import pytest

from tests.support.waiting import wait_for

WORDS = "the quick brown fox jumps over the lazy dog and goes home "
PROJECT = """
version: 1
project: long
primary:
  model: scripted:echo
  tools: {{read_file: {{enabled: true}}, checkpoint: {{enabled: true}},
           todo: {{enabled: true}}, issue: {{enabled: true}}}}
  compaction: {compaction}
"""
OVER = {"done", "failed", "cancelled"}


def script(*elements: dict[str, Any]) -> str:
    return json.dumps({"script": list(elements)})


def call(name: str, **arguments: Any) -> dict[str, Any]:
    return {"call": name, "arguments": arguments}


class Worker:
    """A session whose agent compacts as it is told."""

    def __init__(
        self,
        client: httpx2.Client,
        make_project: Callable[..., dict[str, Any]],
        **compaction: Any,
    ) -> None:
        self.client = client
        self.project = make_project(PROJECT.format(compaction=json.dumps(compaction)))
        made = client.post(f"/projects/{self.project['id']}/sessions", json={"stuck_guard": False})
        assert made.status_code == 201, made.text
        self.path = f"/sessions/{made.json()['id']}"

    def run(self, content: str) -> dict[str, Any]:
        """Send a message and wait for the end of its run."""
        sent = self.client.post(f"{self.path}/messages", json={"content": content})
        assert sent.status_code == 202, sent.text
        run_path = f"{self.path}/runs/{sent.json()['run']['id']}"
        wait_for(lambda: self.get(run_path)["state"] in OVER, "the run to be over")
        return self.get(run_path)

    def get(self, path: str) -> dict[str, Any]:
        answer = self.client.get(path)
        assert answer.status_code == 200, answer.text
        found: dict[str, Any] = answer.json()
        return found

    def until(self, state: str) -> dict[str, Any]:
        wait_for(lambda: self.get(self.path)["state"] == state, f"the session to be {state}")
        return self.get(self.path)

    def compactions(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.get(f"{self.path}/compactions")["items"]
        return found

    def messages(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.get(f"{self.path}/messages?limit=500")["items"]
        return found

    def fill(self, times: int = 3) -> None:
        """Runs with long answers; the context of the scripted model has room for few."""
        for number in range(times):
            assert self.run(script({"deltas": 600 + number}))["state"] == "done"


@pytest.mark.req("K-072", "K-082")
def test_a_context_that_crosses_its_threshold_is_summarised_while_the_session_runs(
    client: httpx2.Client, make_project: Callable[..., dict[str, Any]]
) -> None:
    worker = Worker(client, make_project, strategy="summarize")
    worker.fill(7)

    made = worker.compactions()

    assert made, "the threshold was crossed"
    assert {one["trigger"] for one in made} == {"threshold_crossed"}
    assert all(one["after_estimate"] < one["threshold_estimate"] for one in made)
    assert not any(one["fallback_occurred"] for one in made)
    assert any(one["metadata"].get("kind") == "summary" for one in worker.messages())
    assert worker.until("idle")["usage"]["api_calls"] >= 8


@pytest.mark.req("K-088")
def test_a_context_length_error_gets_one_compaction_and_one_retry(
    client: httpx2.Client, make_project: Callable[..., dict[str, Any]]
) -> None:
    worker = Worker(client, make_project, strategy="drop")
    worker.fill(3)

    run = worker.run(script({"overflow_above": 1600, "say": "it fits now"}))

    assert run["state"] == "done", run["error"]
    assert run["primary_response"]["content"] == "it fits now"
    assert [one["trigger"] for one in worker.compactions()] == ["provider_overflow_retry"]
    assert worker.run(script({"error": "overflow"}))["error"]["code"] == "context_overflow"


def test_compactions_that_free_too_little_twice_pause_the_session_with_a_reason(
    client: httpx2.Client, make_project: Callable[..., dict[str, Any]]
) -> None:
    worker = Worker(client, make_project, strategy="drop", upper=0.05, lower=0.01)
    step = call("read_file", path="nothing") | {"deltas": 600}
    content = script(step, step, step, step, {"say": WORDS})
    sent = client.post(f"{worker.path}/messages", json={"content": content})
    assert sent.status_code == 202, sent.text

    paused = worker.until("paused")

    point = worker.get(f"{worker.path}/checkpoints/{paused['current_checkpoint']}")
    assert point["created_by"] == "compaction"
    assert "frees too little" in point["reason"]
    assert len(worker.compactions()) == 2


@pytest.mark.req("K-074")
def test_compactions_that_stay_above_their_lower_mark_are_not_enough(
    client: httpx2.Client, make_project: Callable[..., dict[str, Any]]
) -> None:
    worker = Worker(client, make_project, strategy="drop", lower=0.05)
    step = call("read_file", path="nothing") | {"deltas": 600}
    content = script({"repeat": 14, "step": step}, {"say": "never"})
    sent = client.post(f"{worker.path}/messages", json={"content": content})
    assert sent.status_code == 202, sent.text

    paused = worker.until("paused")

    point = worker.get(f"{worker.path}/checkpoints/{paused['current_checkpoint']}")
    assert "frees too little" in point["reason"]
    made = worker.compactions()
    assert len(made) == 2
    for one in made:
        assert one["superseded_message_ids"]
        assert one["window_lower"] < one["after_estimate"] < one["window_upper"]


@pytest.mark.req("K-079", "K-085")
def test_a_compaction_by_hand_can_be_seen_judged_and_taken_back(
    client: httpx2.Client, make_project: Callable[..., dict[str, Any]]
) -> None:
    worker = Worker(client, make_project, strategy="summarize")
    worker.fill(3)
    before = [one["id"] for one in worker.messages()]

    made = client.post(f"{worker.path}/compact", json={"strategy": "drop"}).json()

    path = f"{worker.path}/compactions/{made['id']}"
    assert made["trigger"] == "operator_manual"
    assert {one["id"] for one in made["dropped"]} == set(made["superseded_message_ids"])
    assert len(worker.messages()) < len(before)
    judged = client.patch(path, json={"operator_flag": "bad", "operator_notes": "too much"})
    assert (judged.json()["operator_flag"], judged.json()["operator_notes"]) == ("bad", "too much")
    assert client.patch(path, json={"operator_flag": "great"}).status_code == 400
    taken_back = client.patch(path, json={"operator_flag": None}).json()
    assert (taken_back["operator_flag"], taken_back["operator_notes"]) == (None, "too much")
    undone = client.post(f"{path}/undo")
    assert undone.json()["rolled_back"]
    assert [one["id"] for one in worker.messages()] == before
    assert client.post(f"{path}/undo").status_code == 409
    assert client.post(f"{worker.path}/compact", json={"strategy": "checkpoint"}).status_code == 409
    assert client.post(f"{worker.path}/compact", json={"agent_path": "x.y"}).status_code == 400


@pytest.mark.req("K-080")
def test_a_compaction_by_hand_is_seen_among_the_runs(
    client: httpx2.Client, make_project: Callable[..., dict[str, Any]]
) -> None:
    worker = Worker(client, make_project, strategy="drop")
    worker.fill(3)

    made = client.post(f"{worker.path}/compact", json={}).json()

    listed = worker.get(f"{worker.path}/runs")["items"]
    assert [one["id"] for one in listed].index(made["run_id"]) == 0
    assert len(listed) == 4
    run = worker.get(f"{worker.path}/runs/{made['run_id']}")
    assert (run["state"], run["finish_reason"]) == ("done", "compacted")
    assert (run["operator_message"], run["primary_response"]) == (None, None)


@pytest.mark.req("F-035")
def test_the_call_that_writes_a_summary_says_that_it_is_a_leaf_and_names_what_it_sums_up(
    client: httpx2.Client, make_project: Callable[..., dict[str, Any]]
) -> None:
    worker = Worker(client, make_project, strategy="summarize")
    worker.fill(4)

    made = client.post(f"{worker.path}/compact", json={}).json()

    (call,) = worker.get(f"{worker.path}/runs/{made['run_id']}/calls")["items"]
    assert (call["type"], call["request"]["kind"]) == ("leaf-agent", "leaf-agent")
    assert call["request"]["rendered"] is True
    assert call["request"]["message_ids"] == made["superseded_message_ids"]
    assert call["request"]["message_count"] == len(made["superseded_message_ids"]) > 1


@pytest.mark.req("K-113", "K-114", "K-115", "K-116", "K-117")
def test_an_issue_is_worked_on_with_todos_and_resolved_only_after_the_operator_looked(
    client: httpx2.Client, make_project: Callable[..., dict[str, Any]]
) -> None:
    worker = Worker(client, make_project, strategy="drop")
    unbound = worker.run(script(call("todo", ops=[{"op": "append", "text": "x"}]), {"say": "."}))
    assert "bind an issue" in json.dumps(unbound["tool_calls"][0]["output"])
    issue = client.post(
        f"/projects/{worker.project['id']}/issues", json={"title": "Fix it", "body": "please"}
    ).json()
    bound = client.put(f"{worker.path}/bind", json={"issue_id": issue["id"]})
    assert bound.json()["bound_issue"] == issue["id"]
    ops = [{"op": "init", "items": ["look", "mend"]}, {"op": "done", "text": "look"}]
    resolve = call("issue", op="transition", status="resolved", body="It works.")
    content = script(
        call("todo", ops=ops),
        resolve,
        call("checkpoint", reason="done; shall I close it?"),
        resolve,
        {"say": "closed"},
    )
    sent = client.post(f"{worker.path}/messages", json={"content": content})
    assert sent.status_code == 202, sent.text
    paused = worker.until("paused")
    assert worker.get(f"/issues/{issue['id']}")["status"] == "open"

    path = f"{worker.path}/checkpoints/{paused['current_checkpoint']}/resume"
    assert client.post(path, json={}).status_code == 200

    worker.until("idle")
    run = worker.get(f"{worker.path}/runs/{sent.json()['run']['id']}")
    states = [(one["tool_name"], one["state"]) for one in run["tool_calls"]]
    assert states == [
        ("todo", "done"),
        ("issue", "failed"),
        ("checkpoint", "done"),
        ("issue", "done"),
    ]
    assert worker.get(f"/issues/{issue['id']}")["status"] == "resolved"
    todos = worker.get(f"/issues/{issue['id']}/todos")
    assert todos["markdown"] == "- [x] look\n- [/] mend\n"
    assert [one["body"] for one in worker.get(f"/issues/{issue['id']}/comments")["items"]] == [
        "It works."
    ]
    assert client.delete(f"{worker.path}/bind").json()["bound_issue"] is None
    assert worker.get(f"/issues/{issue['id']}/todos") == todos
