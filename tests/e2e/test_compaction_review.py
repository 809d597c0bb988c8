"""A compaction that waits for the operator: looked at, approved as edited, or rejected."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import httpx2
import pytest

from tests.e2e.test_long_work import WORDS, Worker, call, script


@pytest.mark.req("K-083", "K-084")
@pytest.mark.parametrize("word", ["approve", "reject"])
def test_a_word_on_a_compaction_where_none_waits_is_a_conflict_and_changes_nothing(
    client: httpx2.Client, make_project: Callable[..., dict[str, Any]], word: str
) -> None:
    worker = Worker(client, make_project, strategy="drop")
    content = script(call("checkpoint", reason="look"), {"say": "went on"})
    sent = client.post(f"{worker.path}/messages", json={"content": content}).json()
    paused = worker.until("paused")
    path = f"{worker.path}/checkpoints/{paused['current_checkpoint']}/resume"

    refused = client.post(path, json={"compaction": word})

    assert refused.status_code == 409, refused.text
    assert worker.get(worker.path)["state"] == "paused"
    assert client.post(path, json={}).status_code == 200
    worker.until("idle")
    run = worker.get(f"{worker.path}/runs/{sent['run']['id']}")
    assert run["primary_response"]["content"] == "went on"


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
    following = review.worker.run("What now?")
    assert (following["state"], following["finish_reason"]) == ("done", "done")
    assert following["primary_response"]["content"] == "You said: What now?"
    assert [one["state"] for one in review.worker.compactions()] == ["rejected"]
    summaries = [
        one["id"]
        for run in review.runs()
        for one in review.worker.get(f"{review.worker.path}/runs/{run['id']}/calls")["items"]
        if one["type"] == "leaf-agent"
    ]
    assert summaries == [review.proposed["id"]], "the summary was paid for once"


@pytest.mark.req("K-065", "K-083")
def test_an_approval_tells_the_agent_of_the_prompts_that_were_edited_at_its_checkpoint(
    client: httpx2.Client, make_project: Callable[..., dict[str, Any]]
) -> None:
    review = Review(client, make_project, "after the review")
    changed = client.put(f"{review.path}/prompts/primary", json={"content": "Be odd."})
    assert changed.status_code == 200, changed.text
    edit = changed.json()

    review.resume(compaction="approve")

    review.worker.until("idle")
    assert review.runs()[0]["state"] == "done"
    notices = [one for one in review.worker.messages() if one["role"] == "system"]
    assert [one["content"] for one in notices if "prompts were updated" in one["content"]] == [
        "System prompts were updated at this checkpoint. Previous prompt hash:"
        f" {edit['old_hash']}, new prompt hash: {edit['new_hash']}."
    ]
    events = review.worker.get(f"{review.worker.path}/events?limit=500")["items"]
    resumed = [one["data"] for one in events if one["type"] == "checkpoint.resumed"]
    assert [one["prompts_edited"] for one in resumed] == [1]
