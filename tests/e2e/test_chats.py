"""Chats of a connector on the whole product: one answer after the other, kills, `/clear`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from holdfast.domain.ids import new_id
from tests.support.servers.product import Product
from tests.support.waiting import wait_for

CHAT = "/chats/ann/room"


@pytest.fixture
def memory_product() -> Iterator[Product]:
    """A product whose chats are kept in the memory of its API."""
    product = Product(config='[chats]\nbackend = "memory"\n')
    try:
        yield product.start()
    finally:
        product.close()


def waiting_script(*, go: str) -> str:
    """A message whose run waits for a file in the project's folder."""
    wait = {"command": f"while [ ! -e {go} ]; do sleep 0.05; done"}
    steps = [{"call": "shell", "arguments": wait}, {"say": "slept"}]
    return f"```script\n{json.dumps(steps)}\n```"


def say(client: httpx2.Client, content: str, **fields: Any) -> dict[str, Any]:
    """A message that is taken."""
    headers = {"Idempotency-Key": new_id()}
    body = {"content": content, **fields}
    answer = client.post(f"{CHAT}/messages", json=body, headers=headers)
    assert answer.status_code == 202, answer.text
    taken: dict[str, Any] = answer.json()
    return taken


def answers(client: httpx2.Client, count: int) -> list[str]:
    """What was answered, once everything is answered and the answers are so many."""

    def said() -> list[str] | None:
        lines = client.get(f"{CHAT}/messages").json()["items"]
        found = [line["content"] for line in lines if line["role"] == "assistant"]
        done = len(found) >= count and all(line["state"] == "done" for line in lines)
        return found if done else None

    found = wait_for(said, f"{count} answers")
    assert found is not None
    return found


@pytest.mark.req("T-003", "T-017", "K-028")
def test_a_chat_answers_one_message_after_the_other(
    client: httpx2.Client, project: dict[str, Any]
) -> None:
    say(client, waiting_script(go="go"), project=project["id"])
    assert client.post(f"{CHAT}/messages", json={"content": "now"}).status_code == 409
    assert say(client, "later", on_busy="queue")["queued"] is True
    (Path(project["path"]) / "go").touch()
    assert answers(client, 2) == ["slept", "You said: later"]
    assert client.get(CHAT).json()["message_count"] == 2
    assert client.delete(CHAT).json()["is_active"] is False


@pytest.mark.req("T-006", "T-012", "T-017")
def test_messages_that_wait_are_answered_once_although_api_and_worker_are_killed(
    product: Product, client: httpx2.Client, project: dict[str, Any]
) -> None:
    first = say(client, waiting_script(go="go"), project=project["id"])
    for number in range(3):
        say(client, f"later {number}", on_busy="queue")
    product.wait_restarted("api", product.kill("api"))
    (Path(project["path"]) / "go").touch()
    wait_for(lambda: client.get(CHAT).json()["message_count"], "the first answer")
    old_api, old_worker = product.kill("api"), product.kill("worker")
    product.wait_restarted("api", old_api)
    product.wait_restarted("worker", old_worker)
    said = ["slept", "You said: later 0", "You said: later 1", "You said: later 2"]
    assert answers(client, 4) == said
    chat = client.get(CHAT).json()
    assert (chat["session_id"], chat["message_count"]) == (first["session_id"], 4)
    messages = client.get(f"/sessions/{first['session_id']}/messages").json()["items"]
    asked = [one["content"] for one in messages if one["role"] == "operator"]
    assert asked[1:] == ["later 0", "later 1", "later 2"]


@pytest.mark.req("T-010")
def test_clear_begins_a_new_session_also_after_a_kill(
    product: Product, client: httpx2.Client, project: dict[str, Any]
) -> None:
    first = say(client, "My name is Ann", project=project["id"])
    answers(client, 1)
    assert say(client, "/clear")["reason"] == "cleared"
    product.wait_restarted("api", product.kill("api"))
    second = say(client, "Who am I?")
    assert second["session_id"] != first["session_id"]
    answers(client, 2)
    seen = client.get(f"/sessions/{second['session_id']}/messages").json()["items"]
    assert [one["content"] for one in seen if one["role"] == "operator"] == ["Who am I?"]


@pytest.mark.slow
@pytest.mark.req("T-011", "T-018")
def test_chats_in_memory_are_forgotten_by_a_killed_api_but_answered(
    memory_product: Product,
) -> None:
    with memory_product.api(memory_product.token()) as client:
        first = say(client, waiting_script(go="go"))
        say(client, "later", on_busy="queue")
        memory_product.wait_restarted("api", memory_product.kill("api"))
        assert client.get("/chats").json()["items"] == []
        (Path(first["session"]["working_directory"]) / "go").touch()
        slept, later = answers(client, 2)
        assert slept == "slept"
        assert "You said: “later”" in later
        assert say(client, "hello")["session_id"] != first["session_id"]
