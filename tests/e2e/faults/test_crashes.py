"""Real SIGKILLs against the real product: what was acknowledged is there, and work goes on."""

from __future__ import annotations

import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import httpx2
import pytest

from holdfast.domain.ids import new_id
from holdfast.storage.database.opening import open_store
from tests.stub.openai_stub import OpenAIStub
from tests.support.servers.product import Product
from tests.support.stored_rows import frames_of
from tests.support.waiting import wait_for

# A part that was killed is back in a second, or in half a minute on a machine with other work.
pytestmark = pytest.mark.timeout(400)
OVER = {"done", "failed", "cancelled"}
CRASHED = "session.crash_recovered"


def post(client: httpx2.Client, session_id: str, content: str, key: str = "") -> dict[str, Any]:
    """A message that was acknowledged."""
    headers = {"Idempotency-Key": key} if key else {}
    answer = client.post(
        f"/sessions/{session_id}/messages", json={"content": content}, headers=headers
    )
    assert answer.status_code == 202, answer.text
    accepted: dict[str, Any] = answer.json()
    return accepted


def script(*steps: dict[str, Any]) -> str:
    return json.dumps({"script": list(steps)})


def over(client: httpx2.Client, session_id: str, run_id: str) -> dict[str, Any]:
    """The run once it is over, however often the API cannot be reached meanwhile."""

    def look() -> dict[str, Any] | None:
        try:
            answer = client.get(f"/sessions/{session_id}/runs/{run_id}")
        except httpx2.TransportError:
            return None
        found: dict[str, Any] = answer.json()
        return found if answer.status_code == 200 and found["state"] in OVER else None

    found = wait_for(look, f"the end of run {run_id}", timeout_s=120.0)
    assert found is not None
    return found


def history(client: httpx2.Client, session_id: str, **params: Any) -> list[dict[str, Any]]:
    answer = client.get(f"/sessions/{session_id}/messages", params={"limit": 200, **params})
    items: list[dict[str, Any]] = answer.json()["items"]
    return items


def kinds(client: httpx2.Client, session_id: str) -> list[str]:
    answer = client.get(f"/sessions/{session_id}/events", params={"limit": 200})
    return [event["type"] for event in answer.json()["items"]]


def streamed(home: Path, session_id: str) -> str:
    """The words on the session's output channel, read beside the running product."""
    store = open_store(None, home)
    try:
        found = store.read(lambda db: frames_of(db, session_id))
    finally:
        store.close()
    return "".join(frame.payload["text"] for frame in found if frame.type == "delta")


def wait_streamed(home: Path, session_id: str, pieces: int) -> list[str]:
    def came() -> list[str] | None:
        words = streamed(home, session_id).split()
        return words if len(words) >= pieces else None

    found = wait_for(came, f"{pieces} pieces of text")
    assert found is not None
    return found


@pytest.mark.req("K-097", "K-099")
def test_a_killed_worker_loses_no_words_and_its_run_goes_on(
    product: Product, client: httpx2.Client, session: dict[str, Any]
) -> None:
    asked = script({"deltas": 200, "every_ms": 10})  # said again from the start when asked again
    run = post(client, session["id"], asked)["run"]
    before = wait_streamed(product.home, session["id"], 100)
    product.kill("worker")
    assert over(client, session["id"], run["id"])["state"] == "done"
    everything = history(client, session["id"], include_superseded=True)
    cut = next(one for one in everything if one["metadata"].get("interrupted"))
    kept = cut["content"].split()
    assert kept[: len(before)] == before, "what was readable stays readable"
    assert cut["superseded_by"][0]["cause"] == "retry"
    whole = " ".join(str(number) for number in range(1, 201)) + " "
    assert [one["content"] for one in history(client, session["id"])] == [asked, whole]
    assert CRASHED in kinds(client, session["id"])
    product.wait_until_ready()


@pytest.mark.req("K-041")
def test_a_cancel_leaves_the_provider_at_once_and_keeps_the_words(
    client: httpx2.Client,
    session: dict[str, Any],
    stub: OpenAIStub,
    product: Product,
    in_state: Callable[..., dict[str, Any]],
) -> None:
    stub.play({"deltas": 6000, "every_ms": 10})
    run = post(client, session["id"], "a long story")["run"]
    wait_streamed(product.home, session["id"], 5)
    asked = stub.calls[-1]
    answer = client.post(f"/sessions/{session['id']}/runs/{run['id']}/cancel")
    assert answer.status_code in {200, 202}, answer.text
    assert asked.abandoned.wait(30), "the provider's connection stayed open"
    in_state(session["id"], "idle")
    assert over(client, session["id"], run["id"])["state"] == "cancelled"
    kept = history(client, session["id"])[-1]
    assert kept["content"].startswith("1 2 3 4 5 ")
    assert kept["metadata"]["cancelled"]


def test_one_key_is_one_message_at_once_and_after_a_restart_of_the_api(
    product: Product, client: httpx2.Client, session: dict[str, Any], stub: OpenAIStub
) -> None:
    stub.play({"say": "Once."})
    key = new_id()
    with ThreadPoolExecutor(10) as pool:
        asked = [pool.submit(post, client, session["id"], "hello", key) for _ in range(10)]
        answers = [one.result() for one in asked]
    assert len({answer["run"]["id"] for answer in answers}) == 1
    over(client, session["id"], answers[0]["run"]["id"])
    product.wait_restarted("api", product.kill("api"))
    assert post(client, session["id"], "hello", key)["message"] == answers[0]["message"]
    assert [one["content"] for one in history(client, session["id"])] == ["hello", "Once."]


def _resumed(client: httpx2.Client, session_id: str) -> bool:
    return client.post(f"/sessions/{session_id}/resume").status_code == 200


@pytest.mark.slow
@pytest.mark.req("K-097")
@pytest.mark.parametrize("count", [6, 40])
def test_every_acknowledged_run_is_there_after_all_parts_were_killed(
    product: Product, client: httpx2.Client, make_project: Callable[..., dict[str, Any]], count: int
) -> None:
    text = "version: 1\nproject: many\nlimits: {running_sessions: 40}\n"
    project = make_project(text)
    talk = script({"deltas": 40, "every_ms": 50}, {"say": "never"})
    taken: list[tuple[str, str]] = []
    for _ in range(count):
        made = client.post(f"/projects/{project['id']}/sessions", json={}).json()
        accepted = post(client, made["id"], talk)
        taken.append((made["id"], accepted["run"]["id"]))
    product.kill_all()
    product.start()
    there = [client.get(f"/sessions/{one}/runs/{run}").status_code for one, run in taken]
    assert there == [200] * count
    for session_id, run_id in taken:
        if client.get(f"/sessions/{session_id}").json()["state"] == "queued":
            wait_for(partial(_resumed, client, session_id), "a slot")
        assert over(client, session_id, run_id)["state"] == "done"


@pytest.mark.slow
def test_a_killed_temporal_does_not_stop_a_run(
    product: Product, client: httpx2.Client, session: dict[str, Any], stub: OpenAIStub
) -> None:
    steps = {"repeat": 3, "step": {"call": "list_files", "hang_s": 1}}
    run = post(client, session["id"], script(steps, {"say": "Through."}))["run"]
    assert stub.wait_for_requests(2)
    product.kill("temporal")
    assert over(client, session["id"], run["id"])["state"] == "done"
    said = [one["content"] for one in history(client, session["id"]) if one["role"] == "primary"]
    assert said[-1] == "Through."
    assert len(said) == 4
    product.wait_until_ready()


@pytest.mark.slow
@pytest.mark.req("K-099")
def test_sessions_come_back_from_the_database_when_temporals_file_is_lost(
    product: Product,
    client: httpx2.Client,
    new_session: Callable[..., dict[str, Any]],
    run_message: Callable[..., dict[str, Any]],
    stub: OpenAIStub,
) -> None:
    sessions = [new_session()["id"] for _ in range(3)]
    for session_id in sessions:
        assert run_message(session_id, f"remember {session_id}")["state"] == "done"
    busy = new_session()["id"]
    run = post(client, busy, script({"call": "list_files", "hang_s": 2}, {"say": "Back."}))["run"]
    assert stub.wait_for_requests(4)
    product.stop()
    for path in product.home.glob("temporal.db*"):
        path.unlink()
    product.start()
    assert over(client, busy, run["id"])["state"] == "done"
    for session_id in sessions:
        assert run_message(session_id, "again")["state"] == "done"
        asked = json.dumps(stub.calls[-1].body["messages"])
        assert f"remember {session_id}" in asked, "the model sees the history"


@pytest.mark.slow
@pytest.mark.req("K-099", "K-140")
def test_a_project_that_wants_it_fails_the_run_of_a_killed_worker(
    product: Product,
    client: httpx2.Client,
    make_project: Callable[..., dict[str, Any]],
    stub: OpenAIStub,
) -> None:
    project = make_project("version: 1\nproject: strict\non_crash: fail\n")
    session = client.post(f"/projects/{project['id']}/sessions", json={}).json()
    stub.play({"deltas": 3000, "every_ms": 10})
    run = post(client, session["id"], "count")["run"]
    wait_streamed(product.home, session["id"], 5)
    product.kill("worker")
    ended = over(client, session["id"], run["id"])
    assert ended["state"] == "failed"
    assert ended["error"]["code"] == "daemon_crash_during_run"
    assert ended["error"]["message"] == "Previous run was interrupted by a daemon restart."
    assert client.get(f"/sessions/{session['id']}").json()["state"] == "idle"
    assert kinds(client, session["id"]).count(CRASHED) == 1
    product.wait_until_ready()
