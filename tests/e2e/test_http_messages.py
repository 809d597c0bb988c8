"""Messages over HTTP through the whole product: one run per message, whoever comes at once."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx2
import pytest

from tests.stub.openai_stub import OpenAIStub
from tests.support.servers.product import Product
from tests.support.waiting import wait_for

Make = Callable[..., dict[str, Any]]


@pytest.mark.req("K-014", "K-018", "K-034", "K-038", "K-039")
def test_a_message_is_answered_and_its_run_is_on_record(
    client: httpx2.Client, session: dict[str, Any], run_message: Make, stub: OpenAIStub
) -> None:
    stub.play({"say": "Good day to you", "chunks": 3})
    run = run_message(session["id"], "hello")
    assert (run["state"], run["error"]) == ("done", None)
    assert run["operator_message"]["content"] == "hello"
    assert run["primary_response"]["content"] == "Good day to you"
    assert run["tokens_in"] > 0
    assert run["tokens_out"] > 0
    shown = client.get(f"/sessions/{session['id']}").json()
    assert (shown["state"], shown["message_count"]) == ("idle", 2)
    assert shown["usage"]["api_calls"] == 1


@pytest.mark.req("K-035", "K-144")
def test_of_two_messages_at_once_one_is_taken(
    client: httpx2.Client, session: dict[str, Any], in_state: Make, stub: OpenAIStub
) -> None:
    stub.play({"say": "slowly " * 10, "chunks": 10, "every_ms": 100})

    def send(number: int) -> int:
        body = {"content": f"message {number}"}
        return client.post(f"/sessions/{session['id']}/messages", json=body).status_code

    with ThreadPoolExecutor(2) as threads:
        assert sorted(threads.map(send, range(2))) == [202, 409]
    in_state(session["id"], "idle")
    assert len(client.get(f"/sessions/{session['id']}/runs").json()["items"]) == 1


def test_the_same_key_ten_times_at_once_is_one_message(
    client: httpx2.Client, session: dict[str, Any], in_state: Make
) -> None:
    path = f"/sessions/{session['id']}/messages"

    def send(_: int) -> httpx2.Response:
        headers = {"Idempotency-Key": "e2e"}
        return client.post(path, json={"content": "once"}, headers=headers)

    with ThreadPoolExecutor(10) as threads:
        answers = list(threads.map(send, range(10)))
    assert {answer.status_code for answer in answers} == {202}
    assert len({answer.text for answer in answers}) == 1
    in_state(session["id"], "idle")
    said = [item["role"] for item in client.get(path).json()["items"]]
    assert said == ["operator", "primary"]


@pytest.mark.req("K-015", "K-016", "K-017", "K-122", "K-145")
def test_beyond_the_limit_messages_wait_for_their_operator(
    client: httpx2.Client, make_project: Make, in_state: Make, stub: OpenAIStub
) -> None:
    project = make_project("project: narrow\nlimits: {running_sessions: 1}\n")
    first, second = (
        client.post(f"/projects/{project['id']}/sessions", json={}).json()["id"] for _ in range(2)
    )
    stub.play({"say": "long " * 40, "chunks": 40, "every_ms": 100})
    taken = client.post(f"/sessions/{first}/messages", json={"content": "a"}).json()
    queued = client.post(f"/sessions/{second}/messages", json={"content": "b"}).json()
    assert (taken["session"]["state"], queued["session"]["state"]) == ("running", "queued")
    assert client.post(f"/sessions/{second}/resume").status_code == 409
    run_id = taken["run"]["id"]
    assert client.post(f"/sessions/{first}/runs/{run_id}/cancel").status_code == 202
    in_state(first, "idle")
    cancelled = client.get(f"/sessions/{first}/runs/{run_id}").json()
    assert cancelled["state"] == "cancelled"
    assert client.get(f"/sessions/{second}").json()["state"] == "queued"
    assert client.post(f"/sessions/{second}/resume").json()["state"] == "running"
    in_state(second, "idle")


@pytest.mark.req("K-023", "K-025")
def test_an_ended_session_is_over_until_it_is_reopened(
    client: httpx2.Client, session: dict[str, Any], run_message: Make
) -> None:
    path = f"/sessions/{session['id']}"
    run_message(session["id"], "hello")
    assert client.delete(path, params={"confirm": "true"}).json()["state"] == "ended"
    assert client.post(f"{path}/messages", json={"content": "x"}).status_code == 410
    assert client.delete(path, params={"confirm": "true"}).status_code == 409
    assert client.post(f"{path}/reopen").json()["state"] == "idle"
    assert run_message(session["id"], "again")["state"] == "done"


def test_metrics_count_what_happened(product: Product, client: httpx2.Client) -> None:
    def counted() -> bool:
        text = httpx2.get(f"{product.url}/metrics", trust_env=False, timeout=120.0).text
        return 'holdfast_sessions{state="idle"}' in text and "holdfast_http_requests_total" in text

    client.get("/sessions")
    wait_for(counted, "the metrics")
