"""A small socket server that a test scripts: what it says to each connection of a stream."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Callable, Iterator
from http import HTTPStatus
from typing import Any

from websockets.exceptions import ConnectionClosed
from websockets.http11 import Request, Response
from websockets.sync.server import ServerConnection, serve

from tests.support.waiting import wait_for

Handler = Callable[[ServerConnection, dict[str, Any], int], None]


@contextlib.contextmanager
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
    """One frame, on `output` if it has a seq."""
    channel = "output" if seq else "control"
    frame = {"channel": channel, "type": kind, "seq": seq, "payload": payload}
    connection.send(json.dumps(frame))


def ignore(connection: ServerConnection, hello: dict[str, Any], number: int) -> None:
    """A handler that says nothing."""


class WelcomingServer:
    """Welcomes every client and says nothing more; counts who is connected."""

    def __init__(self) -> None:
        self.connected = 0
        self.close_codes: list[int | None] = []

    def serve(self, connection: ServerConnection, hello: dict[str, Any], number: int) -> None:
        """Until the client leaves."""
        self.connected += 1
        send(connection, "welcome", server_seq={"output": 0, "events": 0})
        with contextlib.suppress(ConnectionClosed):
            connection.recv()
        self.close_codes.append(connection.close_code)
        self.connected -= 1

    def codes_when_left(self) -> list[int | None]:
        """The close codes of the clients, once none is connected."""
        wait_for(lambda: not self.connected, "the clients to leave")
        return self.close_codes
