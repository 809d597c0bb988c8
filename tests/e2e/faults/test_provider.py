"""A provider in trouble: the run waits and goes on, says so when it gives up, and loses nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import httpx2
import pytest

from tests.stub.openai_stub import OpenAIStub
from tests.support.waiting import wait_for

Run = Callable[..., dict[str, Any]]


def said(client: httpx2.Client, session_id: str, **params: Any) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = client.get(
        f"/sessions/{session_id}/messages", params=params
    ).json()["items"]
    return found


@pytest.mark.parametrize("trouble", [{"drop": True}, {"garbage": True}], ids=["dropped", "garbage"])
def test_a_stream_that_breaks_is_asked_for_again_and_its_words_are_kept_aside(
    stub: OpenAIStub,
    client: httpx2.Client,
    session: dict[str, Any],
    run_message: Run,
    trouble: dict[str, Any],
) -> None:
    stub.play({"say": "Half an answer", "chunks": 3, **trouble}, {"say": "A whole answer."})
    run = run_message(session["id"], "please")
    assert run["state"] == "done"
    assert [one["content"] for one in said(client, session["id"])] == ["please", "A whole answer."]
    everything = said(client, session["id"], include_superseded=True)
    aside = [one for one in everything if one["superseded"]]
    assert [one["superseded_by"][0]["cause"] for one in aside] == ["retry"]


def test_a_rate_limit_is_waited_out(
    stub: OpenAIStub, client: httpx2.Client, session: dict[str, Any], run_message: Run
) -> None:
    stub.play({"error": 429}, {"error": 429}, {"say": "There was room again."})
    run = run_message(session["id"], "please")
    assert run["state"] == "done"
    assert len(stub.calls) == 3
    assert said(client, session["id"])[-1]["content"] == "There was room again."


def test_a_provider_that_refuses_fails_the_run_at_once_and_the_session_goes_on(
    stub: OpenAIStub, client: httpx2.Client, session: dict[str, Any], run_message: Run
) -> None:
    stub.play({"error": 401})
    run = run_message(session["id"], "please")
    assert run["state"] == "failed"
    assert run["error"]["message"]
    assert len(stub.calls) == 1
    assert run_message(session["id"], "again")["state"] == "done"


def test_a_provider_that_hangs_holds_nobody_else_up_and_is_left_at_once(
    stub: OpenAIStub,
    client: httpx2.Client,
    new_session: Callable[..., dict[str, Any]],
    run_message: Run,
    in_state: Callable[..., dict[str, Any]],
) -> None:
    stub.play({"hang_s": 600})
    hung, other = new_session(), new_session()
    started = client.post(f"/sessions/{hung['id']}/messages", json={"content": "please"})
    assert stub.wait_for_requests(1)
    assert run_message(other["id"], "meanwhile")["state"] == "done"
    run_id = started.json()["run"]["id"]
    assert client.post(f"/sessions/{hung['id']}/runs/{run_id}/cancel").status_code == 202
    in_state(hung["id"], "idle")
    assert stub.calls[0].abandoned.wait(30), "the provider's connection is closed"


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_a_rate_limit_of_a_minute_is_waited_out_though_the_provider_says_in_a_second(
    stub: OpenAIStub, client: httpx2.Client, session: dict[str, Any], run_message: Run
) -> None:
    # One, two, four, eight, sixteen and thirty seconds lie between these.
    stub.play(*[{"error": 429}] * 6, {"say": "There was room again."})
    started = client.post(f"/sessions/{session['id']}/messages", json={"content": "please"})
    path = f"/sessions/{session['id']}/runs/{started.json()['run']['id']}"
    wait_for(lambda: client.get(path).json()["state"] == "done", "the run", timeout_s=300)
    assert len(stub.calls) == 7
    assert stub.calls[-1].received_at - stub.calls[0].received_at > 55
    assert said(client, session["id"])[-1]["content"] == "There was room again."


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_a_provider_that_stays_away_is_named_and_the_session_goes_on(
    stub: OpenAIStub, client: httpx2.Client, session: dict[str, Any], run_message: Run
) -> None:
    stub.play(*[{"error": 503}] * 8)
    started = client.post(f"/sessions/{session['id']}/messages", json={"content": "please"})
    path = f"/sessions/{session['id']}/runs/{started.json()['run']['id']}"
    wait_for(lambda: client.get(path).json()["state"] == "failed", "the run", timeout_s=300)
    error = client.get(path).json()["error"]
    assert error["message"] == "Provider unreachable. Try again or check provider config."
    assert run_message(session["id"], "again")["state"] == "done"
