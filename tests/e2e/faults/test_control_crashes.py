"""SIGKILL of worker and API while messages wait in a busy session: each is seen once, in order."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx2

from tests.support.servers.product import Product
from tests.support.waiting import wait_for


class Busy:
    """A session at work, whose operator goes on asking until there is an answer."""

    def __init__(self, client: httpx2.Client, session: dict[str, Any]) -> None:
        self.client = client
        self.path = f"/sessions/{session['id']}"

    def ask(self, content: str, when_busy: str, key: str) -> dict[str, Any]:
        """The answer to a message, sent again under its key until there is one."""
        body = {"content": content, "when_busy": when_busy}

        def answered() -> httpx2.Response | None:
            try:
                answer = self.client.post(
                    f"{self.path}/messages", json=body, headers={"Idempotency-Key": key}
                )
            except httpx2.TransportError:
                return None
            return answer if answer.status_code < 500 else None

        answer = wait_for(answered, f"{when_busy} to be answered")
        assert answer is not None
        assert answer.status_code == 202, answer.text
        found: dict[str, Any] = answer.json()
        return found

    def session(self) -> dict[str, Any]:
        found: dict[str, Any] = self.client.get(self.path).json()
        return found

    def said(self) -> list[tuple[str, str]]:
        """Role and first line of what counts."""
        items = self.client.get(f"{self.path}/messages", params={"limit": 500}).json()["items"]
        return [(one["role"], one["content"].split("\n")[0]) for one in items]

    def come_to_rest(self) -> None:
        def at_rest() -> bool:
            found = self.session()
            return (found["state"], found["waiting"]) == ("idle", 0)

        wait_for(at_rest, "the session to come to rest")


WAITS = "while [ ! -e go ]; do sleep 0.05; done"


def working(words: str, *steps: dict[str, Any]) -> str:
    """A message that keeps the session at work."""
    return f"{words}\n```script\n{json.dumps(list(steps))}\n```"


def test_messages_that_wait_outlive_worker_and_api(
    product: Product,
    client: httpx2.Client,
    project: dict[str, Any],
    new_session: Callable[..., dict[str, Any]],
) -> None:
    busy = Busy(client, new_session())
    shell = {"call": "shell", "arguments": {"command": WAITS}}
    first = busy.ask(working("one", shell, {"say": "unused"}), "reject", uuid4().hex)
    keys = {"steered": uuid4().hex, "queued": uuid4().hex}
    steered = busy.ask("steered", "steer", keys["steered"])
    assert steered["run"]["id"] == first["run"]["id"]
    busy.ask("queued", "queue", keys["queued"])
    old = {part: product.kill(part) for part in ("worker", "api")}
    for part, pid in old.items():
        product.wait_restarted(part, pid)
    again = busy.ask("steered", "steer", keys["steered"])
    assert again["message"]["id"] == steered["message"]["id"]
    (Path(project["path"]) / "go").touch()
    busy.come_to_rest()
    asked = [words for role, words in busy.said() if role == "operator"]
    assert asked == ["one", "steered", "queued"]
    assert busy.said()[-1] == ("primary", "You said: queued")

    second = busy.ask(working("two", {"say": "never", "hang_s": 600}), "reject", uuid4().hex)
    key, answers = uuid4().hex, []
    asking = threading.Thread(
        target=lambda: answers.append(busy.ask("stop that", "interrupt", key))
    )
    asking.start()
    time.sleep(0.05)
    product.wait_restarted("worker", product.kill("worker"))
    asking.join()
    busy.come_to_rest()
    cancelled = client.get(f"{busy.path}/runs/{second['run']['id']}").json()
    done = client.get(f"{busy.path}/runs/{answers[0]['run']['id']}").json()
    assert (cancelled["state"], done["state"]) == ("cancelled", "done")
    asked = [words for role, words in busy.said() if role == "operator"]
    assert asked == ["one", "steered", "queued", "two", "stop that"]
    assert busy.said()[-1] == ("primary", "You said: stop that")
