"""Both streams over a small socket server: they resume, drop repeats, and know refusals."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from http import HTTPStatus
from typing import Any

import pytest
from websockets.sync.server import ServerConnection

from holdfast import Client, Refused, Unreachable
from holdfast.client import session_socket
from tests.support.servers.socket_server import WelcomingServer, ignore, send, socket_server
from tests.support.waiting import wait_for

Open = Callable[[str, str], Client]


def test_after_a_lost_connection_it_goes_on_at_its_seq_without_repeats(open_client: Open) -> None:
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
        stream = open_client(url, "token").stream("S")
        frames = list(stream)
    assert [frame.payload["text"] for frame in frames if frame.type == "delta"] == ["a", "b", "c"]
    assert "resume_from_seq" not in hellos[0]
    assert hellos[1]["resume_from_seq"] == {"output": 6, "events": 7}
    assert frames[-1].payload == {"code": "session_ended"}
    assert stream.seen == {"output": 7, "events": 7}


def test_a_gap_is_told_and_the_stream_begins_anew(open_client: Open) -> None:
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
        stream = open_client(url, "token").stream("S", resume_from={"output": 3, "events": 1})
        kinds = [frame.type for frame in stream]
    assert kinds == ["closing", "welcome", "closing"]
    assert hellos[0]["resume_from_seq"] == {"output": 3, "events": 1}
    assert "resume_from_seq" not in hellos[1]


def test_a_refused_socket_says_why(open_client: Open) -> None:
    with socket_server(ignore, refuse=HTTPStatus.CONFLICT) as url:
        stream = open_client(url, "token").stream("S", observe=False)
        with pytest.raises(Refused, match="somebody is attached") as caught:
            list(stream)
    assert caught.value.status == 409


def test_it_gives_up_when_nobody_answers(open_client: Open) -> None:
    stream = open_client("http://127.0.0.1:9", "token").stream("S", give_up_after_s=0.0)
    with pytest.raises(Unreachable):
        list(stream)


def test_it_connects_again_when_the_server_is_unavailable_for_a_moment(open_client: Open) -> None:
    def handler(connection: ServerConnection, hello: dict[str, Any], number: int) -> None:
        send(connection, "welcome", server_seq={"output": 4, "events": 7})
        if number == 0:
            send(connection, "closing", code="unavailable")
            connection.close(1013)
            return
        assert hello["payload"]["resume_from_seq"] == {"output": 4, "events": 7}
        send(connection, "delta", 5, text="a")
        send(connection, "closing", code="session_ended")

    with socket_server(handler) as url:
        kinds = [frame.type for frame in open_client(url, "token").stream("S")]
    assert kinds == ["welcome", "closing", "welcome", "delta", "closing"]


def test_it_gives_up_on_a_server_that_closes_before_the_first_frame(open_client: Open) -> None:
    with socket_server(lambda connection, *_: connection.close()) as url:
        stream = open_client(url, "token").stream("S", give_up_after_s=0.0)
        with pytest.raises(Unreachable, match="closed before a frame came"):
            list(stream)


def test_a_proxy_of_the_environment_is_not_used(
    open_client: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    for name in ("http_proxy", "https_proxy", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")

    def handler(connection: ServerConnection, hello: dict[str, Any], number: int) -> None:
        send(connection, "closing", code="session_ended")

    with socket_server(handler) as url:
        stream = open_client(url, "token").stream("S", give_up_after_s=0.0)
        assert [frame.type for frame in stream] == ["closing"]


def test_frames_are_sent_while_connected_and_only_then(open_client: Open) -> None:
    taken: list[dict[str, Any]] = []

    def handler(connection: ServerConnection, hello: dict[str, Any], number: int) -> None:
        send(connection, "welcome", server_seq={"output": 0, "events": 0})
        taken.append(json.loads(connection.recv()))
        send(connection, "closing", code="session_ended")

    with socket_server(handler) as url:
        stream = open_client(url, "token").stream("S")
        assert not stream.send("pty", "stdin", {"data": "x"})
        for frame in stream:
            if frame.type == "welcome":
                assert stream.send("pty", "stdin", {"data": "y"})
        assert not stream.send("pty", "stdin", {"data": "z"})
    assert taken == [{"channel": "pty", "type": "stdin", "payload": {"data": "y"}}]


def test_close_ends_the_wait_for_the_next_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session_socket, "RETRY_S_MIN", 600.0)
    with socket_server(ignore, refuse=HTTPStatus.SERVICE_UNAVAILABLE) as url:
        stream = Client(url, "token").stream("S")
        reading = threading.Thread(target=lambda: list(stream), daemon=True)
        reading.start()
        wait_for(lambda: stream._socket._lost_at, "the first connection to be refused")
        stream.close()
        reading.join(timeout=120.0)
    assert not reading.is_alive()


def test_an_iterator_that_is_left_early_closes_the_socket_cleanly(open_client: Open) -> None:
    server = WelcomingServer()
    with socket_server(server.serve) as url:
        frames = iter(open_client(url, "token").stream("S"))
        assert next(frames).type == "welcome"
        frames.close()
        assert server.codes_when_left() == [1000]
