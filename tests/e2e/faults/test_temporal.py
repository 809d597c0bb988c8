"""Temporal that does not answer for a while: reads go on, commands wait or say so, none is lost."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx2
import pytest

from tests.support.servers.product import Product
from tests.support.waiting import wait_for


@contextmanager
def stopped(product: Product, part: str) -> Iterator[None]:
    """The part stands still meanwhile; a kill is not needed to be unreachable."""
    pid = product.pids()[part]
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


def messages(client: httpx2.Client, session_id: str) -> list[str]:
    items = client.get(f"/sessions/{session_id}/messages").json()["items"]
    return [one["content"] for one in items if one["role"] == "operator"]


def test_a_command_waits_for_temporal_and_is_answered(
    product: Product,
    client: httpx2.Client,
    session: dict[str, Any],
    run_message: Callable[..., dict[str, Any]],
    in_state: Callable[..., dict[str, Any]],
) -> None:
    run_message(session["id"], "before")
    path = f"/sessions/{session['id']}/messages"
    with ThreadPoolExecutor(1) as pool:
        with stopped(product, "temporal"):
            asked = pool.submit(client.post, path, json={"content": "meanwhile"})
            with product.api(client.headers["authorization"].removeprefix("Bearer ")) as reader:
                assert reader.get(f"/sessions/{session['id']}").json()["state"] == "idle"
                assert messages(reader, session["id"]) == ["before"]
            assert not asked.done()
        answer = asked.result(timeout=120.0)
    assert answer.status_code == 202, answer.text
    in_state(session["id"], "idle")
    assert messages(client, session["id"]) == ["before", "meanwhile"]


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_command_that_waited_too_long_says_so_and_may_be_repeated(
    product: Product,
    client: httpx2.Client,
    session: dict[str, Any],
    run_message: Callable[..., dict[str, Any]],
    in_state: Callable[..., dict[str, Any]],
) -> None:
    run_message(session["id"], "before")
    key = {"Idempotency-Key": uuid4().hex}
    body = {"content": "meanwhile"}
    path = f"/sessions/{session['id']}/messages"
    with stopped(product, "temporal"):
        answer = client.post(path, json=body, headers=key, timeout=120.0)
        assert answer.status_code == 503
        assert "may be repeated" in answer.json()["error"]["message"]
        assert answer.headers["retry-after"]
    product.wait_until_ready()

    def taken() -> bool:
        return client.post(path, json=body, headers=key, timeout=120.0).status_code == 202

    wait_for(taken, "the repeat to be taken", timeout_s=120.0)
    in_state(session["id"], "idle")
    assert messages(client, session["id"]) == ["before", "meanwhile"]


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_temporal_away_for_a_minute_ends_no_run_and_loses_no_command(
    product: Product,
    client: httpx2.Client,
    new_session: Callable[..., dict[str, Any]],
    project: dict[str, Any],
    in_state: Callable[..., dict[str, Any]],
) -> None:
    running, idle = new_session()["id"], new_session()["id"]
    shell = {"call": "shell", "arguments": {"command": "echo once >> ran.txt; sleep 3"}}
    script = json.dumps({"script": [shell, {"say": "Done."}]})
    sent = client.post(
        f"/sessions/{running}/messages", json={"content": script, "model_override": "scripted:demo"}
    )
    assert sent.status_code == 202, sent.text
    ran = Path(project["path"]) / "ran.txt"
    wait_for(ran.exists, "the command to run")
    key = {"Idempotency-Key": uuid4().hex}

    def ask() -> httpx2.Response:
        path = f"/sessions/{idle}/messages"
        return client.post(path, json={"content": "meanwhile"}, headers=key, timeout=120.0)

    with stopped(product, "temporal"):
        away_until = time.monotonic() + 60.0  # a minute is what the fault is
        answers = {ask().status_code}
        while time.monotonic() < away_until:
            answers.add(ask().status_code)
            assert client.get(f"/sessions/{running}/messages").status_code == 200
        assert answers == {503}
        assert not product.is_ready()
    product.wait_until_ready()
    wait_for(lambda: ask().status_code == 202, "the repeat to be taken", timeout_s=120.0)
    for session_id in (running, idle):
        in_state(session_id, "idle", timeout_s=180.0)
        runs = client.get(f"/sessions/{session_id}/runs").json()["items"]
        assert [one["state"] for one in runs] == ["done"]
    assert ran.read_text() == "once\n"
    assert messages(client, idle) == ["meanwhile"]


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_worker_that_stood_still_for_longer_than_its_heartbeat_does_nothing_twice(
    product: Product,
    client: httpx2.Client,
    session: dict[str, Any],
    project: dict[str, Any],
    in_state: Callable[..., dict[str, Any]],
) -> None:
    script = (
        '{"script": [{"call": "shell", "arguments": {"command": "echo once >> ran.txt; sleep 4"}},'
        '{"say": "Done."}]}'
    )
    answer = client.post(
        f"/sessions/{session['id']}/messages",
        json={"content": script, "model_override": "scripted:demo"},
    )
    assert answer.status_code == 202, answer.text
    ran = Path(project["path"]) / "ran.txt"
    wait_for(ran.exists, "the command to run")
    with stopped(product, "worker"):
        time.sleep(9)  # longer than the heartbeat's limit: that is the fault itself
    in_state(session["id"], "idle", timeout_s=120.0)
    assert ran.read_text() == "once\n"
