"""Sockets through the whole product: nothing is missed, also when the API is killed."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import httpx2
import pytest

from holdfast import AsyncClient, Client, Frame
from tests.conftest import Account
from tests.stub.openai_stub import OpenAIStub
from tests.support.servers.product import Product
from tests.support.waiting import wait_for

Make = Callable[..., dict[str, Any]]
CLIENTS = 5
START = {"output": 0, "events": 0}


class Listener(threading.Thread):
    """Follows a session from its beginning until a run is over, reconnecting by itself."""

    def __init__(self, product: Product, token: str, session_id: str, *, observe: bool) -> None:
        super().__init__(daemon=True)
        self.observe = observe
        self.address = (product.url, token)
        self.session_id = session_id
        self.text = ""
        self.seqs: dict[str, list[int]] = {"output": [], "events": []}
        self.over = False

    def run(self) -> None:
        with (
            Client(*self.address) as client,
            client.stream(self.session_id, observe=self.observe, resume_from=START) as stream,
        ):
            for frame in stream:
                self.take(frame)
                if self.over:
                    break

    def take(self, frame: Frame) -> None:
        """Note what the frame adds."""
        if frame.seq is not None:
            self.seqs[frame.channel].append(frame.seq)
        if frame.type == "delta":
            self.text += frame.payload["text"]
        self.over = self.over or frame.type == "run.completed"


class AsyncListener(Listener):
    """The same with AsyncClient."""

    def run(self) -> None:
        asyncio.run(self.follow())

    async def follow(self) -> None:
        """Until the run is over."""
        async with (
            AsyncClient(*self.address) as client,
            client.stream(self.session_id, observe=self.observe, resume_from=START) as stream,
        ):
            async for frame in stream:
                self.take(frame)
                if self.over:
                    break


@pytest.mark.req("K-003", "K-093", "K-096", "K-141", "K-149")
@pytest.mark.parametrize("kind", [Listener, AsyncListener])
def test_every_client_has_every_frame_once_although_the_api_is_killed(
    kind: type[Listener],
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
        kind(product, operator.token, session["id"], observe=number > 0)
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


async def test_an_async_question_is_answered_whole_although_the_api_is_killed(
    product: Product, operator: Account, session: dict[str, Any], stub: OpenAIStub
) -> None:
    words = [f"word{number} " for number in range(60)]
    stub.play({"say": "".join(words), "chunks": 60, "every_ms": 50})
    text, killing, kinds = "", None, []
    async with AsyncClient(product.url, operator.token) as holdfast:
        async for frame in holdfast.ask(session["id"], "talk"):
            kinds.append(frame.type)
            if frame.type == "delta":
                text += frame.payload["text"]
                if killing is None:
                    killing = asyncio.create_task(asyncio.to_thread(kill_api, product))
        assert killing is not None
        await killing
        run_id = (await holdfast.items(f"/sessions/{session['id']}/runs"))[0]["id"]
        assert (await holdfast.wait_for_run(session["id"], run_id))["state"] == "done"
        said = [message["content"] for message in await holdfast.messages(session["id"])]
    assert (kinds[0], kinds[-1]) == ("accepted", "run.completed")
    assert "welcome" in kinds, "the API was not killed while the answer was streamed"
    assert text == "".join(words)
    assert said == ["talk", "".join(words)]


def kill_api(product: Product) -> None:
    """SIGKILL, and wait until the next one serves."""
    product.wait_restarted("api", product.kill("api"))


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
