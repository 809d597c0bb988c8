"""The client's stream over a small socket server: it resumes, drops repeats, and knows refusals."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http import HTTPStatus
from typing import Any

import pytest
from websockets.http11 import Request, Response
from websockets.sync.server import ServerConnection, serve

from holdfast.client.client import Frame, ends_run
from holdfast.client.errors import Refused, Unreachable
from holdfast.client.stream import SessionStream

Handler = Callable[[ServerConnection, dict[str, Any], int], None]


@contextmanager
def socket_server(handler: Handler, *, refuse: HTTPStatus | None = None) -> Iterator[str]:
    """A server that hands `handler` each connection, its hello and its number."""
    count = iter(range(1000))

    def handle(connection: ServerConnection) -> None:
        hello = json.loads(connection.recv())
        handler(connection, hello, next(count))

    def refusal(connection: ServerConnection, request: Request) -> Response | None:
        if refuse is None:
            return None
        body = json.dumps({"error": {"code": "conflict", "message": "somebody is attached"}})
        return connection.respond(refuse, body)

    with serve(handle, "127.0.0.1", 0, process_request=refusal) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.socket.getsockname()[1]}"
        server.shutdown()
        thread.join(timeout=120.0)


def send(connection: ServerConnection, kind: str, seq: int | None = None, **payload: Any) -> None:
    channel = "output" if seq else "control"
    frame = {"channel": channel, "type": kind, "seq": seq, "payload": payload}
    connection.send(json.dumps(frame))


def test_after_a_lost_connection_it_goes_on_at_its_seq_without_repeats() -> None:
    hellos: list[dict[str, Any]] = []

    def handler(connection: ServerConnection, hello: dict[str, Any], number: int) -> None:
        hellos.append(hello["payload"])
        send(connection, "welcome", server_seq={"output": 4, "events": 7})
        if number == 0:
            send(connection, "delta", 5, text="a")
            send(connection, "delta", 6, text="b")
            return
        send(connection, "delta", 6, text="b")
        send(connection, "delta", 7, text="c")
        send(connection, "closing", code="session_ended")

    with socket_server(handler) as url:
        frames = list(SessionStream(url, "token", "S"))
    assert [frame.payload["text"] for frame in frames if frame.type == "delta"] == ["a", "b", "c"]
    assert "resume_from_seq" not in hellos[0]
    assert hellos[1]["resume_from_seq"] == {"output": 6, "events": 7}
    assert frames[-1].payload == {"code": "session_ended"}


def test_a_gap_is_told_and_the_stream_begins_anew() -> None:
    hellos: list[dict[str, Any]] = []

    def handler(connection: ServerConnection, hello: dict[str, Any], number: int) -> None:
        hellos.append(hello["payload"])
        if number == 0:
            send(connection, "closing", code="resume_failed")
            connection.close(4409)
            return
        send(connection, "welcome", server_seq={"output": 90, "events": 9})
        send(connection, "closing", code="session_ended")

    with socket_server(handler) as url:
        stream = SessionStream(url, "token", "S", resume_from={"output": 3, "events": 1})
        kinds = [frame.type for frame in stream]
    assert kinds == ["closing", "welcome", "closing"]
    assert hellos[0]["resume_from_seq"] == {"output": 3, "events": 1}
    assert "resume_from_seq" not in hellos[1]


def test_a_refused_socket_says_why() -> None:
    with socket_server(lambda *_: None, refuse=HTTPStatus.CONFLICT) as url:
        stream = SessionStream(url, "token", "S", observe=False)
        with pytest.raises(Refused, match="somebody is attached") as caught:
            list(stream)
    assert caught.value.status == 409


def test_it_gives_up_when_nobody_answers() -> None:
    stream = SessionStream("http://127.0.0.1:9", "token", "S", give_up_after_s=0.0)
    with pytest.raises(Unreachable):
        list(stream)


@pytest.mark.parametrize(
    ("frame", "over"),
    [
        (Frame("events", "run.completed", {"run_id": "R"}), True),
        (Frame("events", "run.completed", {"run_id": "other"}), False),
        (Frame("events", "run.cancelled", {"run_id": "R"}), True),
        (Frame("events", "session.state", {"to_state": "paused"}), True),
        (Frame("events", "session.state", {"to_state": "idle"}), False),
        (Frame("control", "closing", {"code": "session_ended"}), True),
        (Frame("control", "closing", {"code": "resume_failed"}), False),
        (Frame("output", "delta", {"run_id": "R"}), False),
    ],
)
def test_what_ends_a_run(frame: Frame, over: bool) -> None:
    assert ends_run(frame, "R") is over
