"""uvicorn's HTTP protocol with limits on connections, on the head of a request and on its time."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from api.connections import Ledger, peer_of
from api.errors import CODES, error_body
from holdfast.settings.config import Server

HEADERS_MAX = 100
# Beyond its time, a body has one more second for each of so many bytes that came.
BODY_BYTES_PER_S = 1024
WORDS = {
    408: "the request did not arrive in time",
    429: "too many connections from this address",
    431: "the head of the request is too large",
    503: "too many connections; try again later",
}


@dataclass(frozen=True)
class Limits:
    """What one connection may take."""

    ledger: Ledger
    head_bytes: int
    head_s: float
    body_s: float


class BoundedConfig(uvicorn.Config):
    """uvicorn's configuration, with the limits that our protocols look up in it."""

    def __init__(self, *arguments: Any, limits: Limits, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.limits = limits


def limits_of(server: Server) -> Limits:
    """The limits of `[server]`."""
    ledger = Ledger(
        in_all=server.connections,
        per_address=server.connections_per_address,
        trusted_proxies=server.trusted_proxies,
    )
    return Limits(
        ledger=ledger,
        head_bytes=server.head_kib * 1024,
        head_s=server.head_seconds,
        body_s=server.body_seconds,
    )


class HttpProtocol(HttpToolsProtocol):
    """Answers 429, 503, 431 and 408 by itself, in the one shape of errors, and closes."""

    config: BoundedConfig

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Count the connection, and expect a request on it."""
        super().connection_made(transport)
        self._limits = self.config.limits
        self._timer: asyncio.TimerHandle | None = None
        self._in_head = True
        self._head_bytes = self._body_bytes = 0
        self._began = self.loop.time()
        self._refused = False
        status = self._limits.ledger.enter(transport)
        if status is not None:
            self._refuse(status)
            return
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        """One connection less."""
        self._stop_watching()
        self._limits.ledger.leave(self.transport)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Pass bytes on, unless the head they belong to is over its size."""
        if self._refused:
            return
        if self._in_head:
            self._head_bytes += len(data)
        super().data_received(data)
        if self._in_head and self._head_bytes > self._limits.head_bytes and not self._refused:
            self._refuse(431)

    def handle_websocket_upgrade(self) -> None:
        """A socket is counted until it closes, but it has no body to wait for."""
        self._stop_watching()
        if not self._refused:
            super().handle_websocket_upgrade()

    def on_message_begin(self) -> None:
        """The first byte of a request."""
        super().on_message_begin()
        if not self._in_head:
            self._in_head, self._head_bytes = True, 1
            self._began = self.loop.time()
            self._watch()

    def on_header(self, name: bytes, value: bytes) -> None:
        """Keep a header of the head; trailers of a chunked body are nobody's."""
        if self._in_head:
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """The head is whole: refused when it is too large, else a body may follow."""
        size = len(self.url) + sum(len(name) + len(value) + 4 for name, value in self.headers)
        if size > self._limits.head_bytes or len(self.headers) > HEADERS_MAX:
            self._refuse(431)
            return
        self._in_head = False
        self._body_bytes, self._began = 0, self.loop.time()
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        """A part of the body."""
        if not self._refused:
            self._body_bytes += len(body)
            super().on_body(body)

    def on_message_complete(self) -> None:
        """The request is whole."""
        if not self._refused:
            self._stop_watching()
            super().on_message_complete()

    def _watch(self) -> None:
        self._stop_watching()
        limit = self._limits.head_s if self._in_head else self._limits.body_s
        self._timer = self.loop.call_later(limit, self._look)

    def _stop_watching(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _look(self) -> None:
        """Refuse a request that is late; while we do not read, waiting is our own doing."""
        allowed = self._limits.head_s
        if not self._in_head:
            allowed = self._limits.body_s + self._body_bytes / BODY_BYTES_PER_S
        left = self._began + allowed - self.loop.time()
        if self.flow.read_paused:
            left = max(left, 1.0)
        if left > 0:
            self._timer = self.loop.call_later(left, self._look)
        elif self._in_head and self._head_bytes == 0:
            self.transport.close()
        else:
            self._refuse(408)

    def _refuse(self, status: int) -> None:
        """Answer, unless an answer has begun, and close."""
        self._refused = True
        self._stop_watching()
        words = WORDS[status]
        self._limits.ledger.tell(str(status), f"{words} ({peer_of(self.transport)})")
        if self.cycle is None or self.cycle.response_complete or not self.cycle.response_started:
            self.transport.write(_answer(status, words))
            if self.cycle is not None:
                self.cycle.disconnected = True
        self.transport.close()


def _answer(status: int, words: str) -> bytes:
    body = json.dumps(error_body(CODES.get(status, "bad_request"), words)).encode()
    head = (
        f"HTTP/1.1 {status} {HTTPStatus(status).phrase}\r\ncontent-type: application/json\r\n"
        f"content-length: {len(body)}\r\nconnection: close\r\n"
    )
    retry = "retry-after: 1\r\n" if status in (429, 503) else ""
    return f"{head}{retry}\r\n".encode() + body
