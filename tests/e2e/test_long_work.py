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
        made = client.post(f"/projects/{self.project['id']}/sessions", json={})
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
    undone = client.post(f"{path}/undo")
    assert undone.json()["rolled_back"]
    assert [one["id"] for one in worker.messages()] == before
    assert client.post(f"{path}/undo").status_code == 409
    assert client.post(f"{worker.path}/compact", json={"strategy": "checkpoint"}).status_code == 409
    assert client.post(f"{worker.path}/compact", json={"agent_path": "x.y"}).status_code == 400


class Review:
    """A session that is paused until the operator approves or rejects its compaction."""

    def __init__(
        self, client: httpx2.Client, make_project: Callable[..., dict[str, Any]], answer: str
    ) -> None:
        self.worker = Worker(client, make_project, strategy="checkpoint")
        self.worker.fill(4)
        script = json.dumps([{"say": answer}])
        self.run = self.worker.run(f"{WORDS * 120}\n```script\n{script}\n```")
        self.paused = self.worker.until("paused")
        self.path = f"{self.worker.path}/checkpoints/{self.paused['current_checkpoint']}"
        self.proposed: dict[str, Any] = self.point()["compaction"]
        self.before = self.message_ids()

    def point(self) -> dict[str, Any]:
        return self.worker.get(self.path)

    def record(self) -> dict[str, Any]:
        return self.worker.get(f"{self.worker.path}/compactions/{self.proposed['id']}")

    def runs(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.worker.get(f"{self.worker.path}/runs")["items"]
        return found

    def message_ids(self) -> list[str]:
        return [one["id"] for one in self.worker.messages()]

    def resume(self, **body: Any) -> dict[str, Any]:
        answer = self.worker.client.post(f"{self.path}/resume", json=body)
        assert answer.status_code == 200, answer.text
        session: dict[str, Any] = answer.json()
        return session


@pytest.mark.req("K-057", "K-058", "K-083")
def test_a_compaction_under_review_ends_the_run_and_is_shown_at_its_checkpoint(
    client: httpx2.Client, make_project: Callable[..., dict[str, Any]]
) -> None:
    review = Review(client, make_project, "after the review")

    point, proposed = review.point(), review.proposed

    assert (review.run["state"], review.run["finish_reason"]) == ("done", "awaiting_compaction")
    assert (review.paused["active_run"], review.paused["state"]) == (None, "paused")
    assert (point["created_by"], point["reason"]) == ("compaction", "compaction_pending")
    assert point["compaction_id"] == proposed["id"]
    assert (proposed["state"], proposed["checkpoint_id"]) == ("pending", point["id"])
    assert proposed["summary"]
    assert proposed["superseded_message_ids"]
    assert set(proposed["superseded_message_ids"]) < set(review.before), "nothing is gone yet"


@pytest.mark.req("K-083")
def test_an_approved_compaction_is_carried_out_as_edited_and_a_new_run_goes_on(
    client: httpx2.Client, make_project: Callable[..., dict[str, Any]]
) -> None:
    review = Review(client, make_project, "after the review")
    gone = review.proposed["superseded_message_ids"][:-2]

    resumed = review.resume(
        compaction="approve", summary="My summary of it all.", superseded_message_ids=gone
    )

    assert resumed["state"] == "running"
    assert resumed["active_run"] not in (None, review.run["id"])
    review.worker.until("idle")
    newest, before = review.runs()[:2]
    assert (newest["id"], before["id"]) == (resumed["active_run"], review.run["id"])
    assert newest["state"] == "done", newest["error"]
    assert newest["operator_message"]["id"] == review.run["operator_message"]["id"]
    assert newest["primary_response"]["content"] == "after the review"
    record = review.record()
    assert (record["state"], record["superseded_message_ids"]) == ("done", gone)
    assert record["summary"] == "My summary of it all."
    assert review.point()["resumed_at"] is not None
    left = {one["id"]: one["content"] for one in review.worker.messages()}
    assert set(review.before) - set(left) == set(gone)
    assert "My summary of it all." in left[record["summary_message_id"]]


@pytest.mark.req("K-084")
def test_a_rejected_compaction_leaves_every_message_and_the_session_idle(
    client: httpx2.Client, make_project: Callable[..., dict[str, Any]]
) -> None:
    review = Review(client, make_project, "never said")

    resumed = review.resume(compaction="reject")

    assert (resumed["state"], resumed["active_run"]) == ("idle", None)
    assert resumed["current_checkpoint"] is None
    record, point = review.record(), review.point()
    assert (record["fallback_occurred"], record["fallback_reason"]) == (True, "operator_rejected")
    assert (record["state"], record["superseded_message_ids"]) == ("rejected", [])
    assert (point["rolled_back"], point["resumed_at"]) == (True, None)
    assert review.message_ids() == review.before
    assert review.runs()[0]["id"] == review.run["id"], "no new run was started"
    again = client.post(f"{review.path}/resume", json={"compaction": "approve"})
    assert again.status_code == 409


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
