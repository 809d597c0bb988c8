"""Sockets through the whole product: nothing is missed, also when the API is killed."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import httpx2
import pytest

from holdfast import Client
from tests.conftest import Account
from tests.stub.openai_stub import OpenAIStub
from tests.support.product import Product
from tests.support.waiting import wait_for

Make = Callable[..., dict[str, Any]]
CLIENTS = 5


class Listener(threading.Thread):
    """Follows a session from its beginning until a run is over, reconnecting by itself."""

    def __init__(self, product: Product, token: str, session_id: str, *, observe: bool) -> None:
        super().__init__(daemon=True)
        self.observe = observe
        self.client = Client(product.url, token)
        self.session_id = session_id
        self.text = ""
        self.seqs: dict[str, list[int]] = {"output": [], "events": []}
        self.over = False

    def run(self) -> None:
        start = {"output": 0, "events": 0}
        stream = self.client.stream(self.session_id, observe=self.observe, resume_from=start)
        for frame in stream:
            if frame.seq is not None:
                self.seqs[frame.channel].append(frame.seq)
            if frame.type == "delta":
                self.text += frame.payload["text"]
            if frame.type == "run.completed":
                self.over = True
                break
        stream.close()
        self.client.close()


@pytest.mark.req("K-003", "K-093", "K-096", "K-141", "K-149")
def test_every_client_has_every_frame_once_although_the_api_is_killed(
    product: Product,
    operator: Account,
    client: httpx2.Client,
    session: dict[str, Any],
    in_state: Make,
    stub: OpenAIStub,
) -> None:
    words = [f"word{number} " for number in range(60)]
    stub.play({"say": "".join(words), "chunks": 60, "every_ms": 50})
    # The first is the attached operator: the killed API's lease must not keep it out.
    listeners = [
        Listener(product, operator.token, session["id"], observe=number > 0)
        for number in range(CLIENTS)
    ]
    for listener in listeners:
        listener.start()
    wait_for(lambda: client.get(f"/sessions/{session['id']}").json()["attached"], "the operator")
    sent = send(client, session["id"])
    wait_for(lambda: all(listener.text for listener in listeners), "everybody to hear something")
    product.wait_restarted("api", product.kill("api"))
    assert send(client, session["id"]).text == sent.text
    for listener in listeners:
        listener.join(timeout=120.0)
        assert listener.over
        assert listener.text == "".join(words)
        for seqs in listener.seqs.values():
            assert seqs == list(range(1, len(seqs) + 1))
    in_state(session["id"], "idle")
    assert len(client.get(f"/sessions/{session['id']}/runs").json()["items"]) == 1


def send(client: httpx2.Client, session_id: str) -> httpx2.Response:
    """One message, however often it is sent."""
    answer = client.post(
        f"/sessions/{session_id}/messages",
        json={"content": "talk"},
        headers={"Idempotency-Key": f"talk-{session_id}"},
    )
    assert answer.status_code == 202, answer.text
    return answer


@pytest.mark.req("K-125", "K-145")
def test_the_system_socket_counts_runs(
    product: Product,
    operator: Account,
    client: httpx2.Client,
    session: dict[str, Any],
    run_message: Make,
) -> None:
    import json

    from websockets.sync.client import connect

    address = f"ws{product.url.removeprefix('http')}/api/v1/system/socket"
    headers = {"Authorization": f"Bearer {operator.token}"}
    with connect(address, additional_headers=headers, compression=None) as socket:
        totals = [json.loads(socket.recv(timeout=120.0))["payload"]["total"]]
        run_message(session["id"], "hello")
        totals += [json.loads(socket.recv(timeout=120.0))["payload"]["total"] for _ in range(2)]
    assert totals == [0, 1, 0]
