"""Slow, large and many: what one address may take of the server's connections, heads and time."""

from __future__ import annotations

import contextlib
import logging
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest

from holdfast.storage.database.opening import OpenStore
from tests.support.servers.api_server import CONFIG, ApiServer

GET = b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n"
POST = b"POST /api/v1/projects/load HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 1000\r\n\r\n"
LIMITS = """[server]
connections = 12
connections_per_address = 8
head_seconds = 0.5
body_seconds = 0.5
head_kib = 8
"""


@pytest.fixture
def small_api(sqlite_store: OpenStore, tmp_path: Path) -> Iterator[ApiServer]:
    running = ApiServer(sqlite_store, tmp_path / "api-home", config=CONFIG + LIMITS).start()
    yield running
    running.stop()


@contextlib.contextmanager
def connected(api: ApiServer, source: str = "127.0.0.1") -> Iterator[socket.socket]:
    address = ("127.0.0.1", api.port)
    with socket.create_connection(address, timeout=20, source_address=(source, 0)) as one:
        yield one


def answer(one: socket.socket) -> bytes:
    """All that comes until the server closes."""
    parts = []
    with contextlib.suppress(ConnectionResetError):
        while part := one.recv(65536):
            parts.append(part)
    return b"".join(parts)


def healthy(one: socket.socket) -> bytes:
    """The whole answer to GET /healthz, which may come in pieces."""
    heard = b""
    while not heard.endswith(b'{"status":"ok"}'):
        heard += (part := one.recv(65536))
        assert part, heard
    return heard


def dribble(one: socket.socket, data: bytes) -> bytes:
    """One byte at a time until the server has had enough; what it said then."""
    one.settimeout(0.05)
    for byte in data:
        try:
            one.sendall(bytes([byte]))
            if one.recv(1, socket.MSG_PEEK):
                break
        except TimeoutError:
            continue
        except OSError:
            break
    one.settimeout(20)
    return answer(one)


def test_a_head_that_dribbles_in_is_cut_off(small_api: ApiServer) -> None:
    with connected(small_api) as one:
        assert dribble(one, GET + b"X-Slow: " + b"a" * 10_000).startswith(b"HTTP/1.1 408 ")


def test_a_second_head_on_a_connection_has_no_more_time_than_the_first(
    small_api: ApiServer,
) -> None:
    with connected(small_api) as one:
        one.sendall(GET + b"\r\n")
        assert healthy(one).startswith(b"HTTP/1.1 200")
        assert dribble(one, GET + b"X-Slow: " + b"a" * 10_000).startswith(b"HTTP/1.1 408 ")


def test_a_second_head_that_stops_after_its_first_piece_is_answered_in_words(
    small_api: ApiServer,
) -> None:
    with connected(small_api) as one:
        one.sendall(GET + b"\r\n")
        assert healthy(one).startswith(b"HTTP/1.1 200")
        one.sendall(GET)
        assert answer(one).startswith(b"HTTP/1.1 408 ")


def test_a_body_that_dribbles_in_is_cut_off(small_api: ApiServer) -> None:
    with connected(small_api) as one:
        one.sendall(POST.replace(b"\r\n\r\n", b"\r\nAuthorization: Bearer x\r\n\r\n"))
        heard = dribble(one, b"a" * 1000)
        assert heard.startswith((b"HTTP/1.1 401 ", b"HTTP/1.1 408 "))
    caller = small_api.operator()
    with connected(small_api) as one:
        bearer = f"\r\nAuthorization: Bearer {caller.token}\r\n\r\n".encode()
        one.sendall(POST.replace(b"\r\n\r\n", bearer))
        assert dribble(one, b"a" * 1000).startswith(b"HTTP/1.1 408 ")
    caller.close()


def test_a_connection_that_says_nothing_is_closed(small_api: ApiServer) -> None:
    with connected(small_api) as one:
        assert answer(one) == b""


@pytest.mark.parametrize(
    "head",
    [
        GET + b"X-Large: " + b"a" * 9_000 + b"\r\n\r\n",
        GET + b"X-Large: " + b"a" * 300_000,
        GET + b"".join(b"X-%d: a\r\n" % number for number in range(101)) + b"\r\n",
        b"GET /" + b"a" * 9_000 + b" HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
    ],
    ids=["one header", "endless header", "many headers", "address"],
)
def test_a_head_that_is_too_large_is_refused(small_api: ApiServer, head: bytes) -> None:
    with connected(small_api) as one:
        with contextlib.suppress(ConnectionError):
            one.sendall(head)
        heard = answer(one)
        assert heard.startswith(b"HTTP/1.1 431 ")
        assert b'"code": "bad_request"' in heard


def test_trailers_of_a_body_are_not_headers(small_api: ApiServer) -> None:
    caller = small_api.operator()
    head = b"POST /api/v1/projects/load HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n"
    with connected(small_api) as one:
        one.sendall(head + b"Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n")
        one.sendall(f"Authorization: Bearer {caller.token}\r\n\r\n".encode())
        assert answer(one).startswith(b"HTTP/1.1 401 ")
    caller.close()


def test_one_address_takes_no_connections_from_the_others(
    small_api: ApiServer, caplog: pytest.LogCaptureFixture
) -> None:
    with contextlib.ExitStack() as stack, caplog.at_level(logging.WARNING, "holdfast.api"):
        for _ in range(8):
            stack.enter_context(connected(small_api))
        refused = stack.enter_context(connected(small_api))
        assert answer(refused).startswith(b"HTTP/1.1 429 ")
        other = stack.enter_context(connected(small_api, "127.0.0.2"))
        other.sendall(GET + b"\r\n")
        assert other.recv(65536).startswith(b"HTTP/1.1 200")
    assert "8 connections from 127.0.0.1, the most there may be" in caplog.text


def test_there_is_a_most_of_connections_in_all(small_api: ApiServer) -> None:
    with contextlib.ExitStack() as stack:
        for number in range(12):
            stack.enter_context(connected(small_api, f"127.0.0.{2 + number // 6}"))
        refused = stack.enter_context(connected(small_api, "127.0.0.9"))
        assert answer(refused).startswith(b"HTTP/1.1 503 ")
    deadline = time.monotonic() + 20
    while httpx2.get(f"{small_api.url}/healthz", trust_env=False).status_code != 200:
        assert time.monotonic() < deadline, "closed connections count no more"


def test_sockets_count_until_they_close(small_api: ApiServer, tmp_path: Path) -> None:
    caller = small_api.operator()
    session = caller.session(caller.project(tmp_path / "work")["id"])["id"]
    caller.close()
    with contextlib.ExitStack() as stack:
        for _ in range(8):
            socket_, _ = caller.attach(session, observe=True)
            stack.enter_context(socket_)
        refused = stack.enter_context(connected(small_api))
        assert answer(refused).startswith(b"HTTP/1.1 429 ")
    deadline = time.monotonic() + 20
    while True:
        with connected(small_api) as one:
            one.sendall(GET + b"Connection: close\r\n\r\n")
            if answer(one).startswith(b"HTTP/1.1 200"):
                return
        assert time.monotonic() < deadline, "closed sockets count no more"


def test_refusals_make_one_line_in_the_log_not_thousands(
    small_api: ApiServer, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "holdfast.api"):
        for _ in range(20):
            with connected(small_api) as one:
                one.sendall(GET + b"X-Large: " + b"a" * 9_000 + b"\r\n\r\n")
                assert answer(one).startswith(b"HTTP/1.1 431 ")
    assert caplog.text.count("refused with 431") == 1
