"""Whether a worker works, and its numbers, for those who keep fleets: /healthz and /metrics."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Callable
from typing import Self

import httpx2
from prometheus_client import REGISTRY, generate_latest

REQUEST_BYTES_MAX = 8192
REQUEST_TIMEOUT_S = 5.0
CONNECTIONS_MAX = 64
METRICS_BYTES_MAX = 8 * 1024 * 1024
TEXT = "text/plain; version=0.0.4; charset=utf-8"
PHRASES = {200: "OK", 404: "Not Found", 503: "Service Unavailable"}


class WorkerHealth:
    """A small HTTP server at `host:port`; with an empty address it serves nothing."""

    def __init__(self, address: str) -> None:
        self._address = address
        self._is_working: Callable[[], bool] | None = None
        self._server: asyncio.Server | None = None
        self._open = 0
        # The SDK serves its own numbers on loopback, and ours passes them on.
        self.temporal_metrics_address = f"127.0.0.1:{_free_port()}" if address else None

    async def __aenter__(self) -> Self:
        if self._address:
            host, _, port = self._address.rpartition(":")
            self._server = await asyncio.start_server(
                self._answer, host.strip("[]"), int(port), limit=REQUEST_BYTES_MAX
            )
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._server is not None:
            self._server.close()

    def serve(self, is_working: Callable[[], bool] | None) -> None:
        """From now on the worker is healthy while this says so; None: it is stopping."""
        self._is_working = is_working

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._open += 1
        try:
            if self._open > CONNECTIONS_MAX:
                return
            async with asyncio.timeout(REQUEST_TIMEOUT_S):
                head = await reader.readuntil(b"\r\n\r\n")
                status, body = await self._page(head.split(b" ", 2)[1:2])
                writer.write(_response(status, body))
                await writer.drain()
        except (OSError, EOFError, TimeoutError, asyncio.LimitOverrunError):
            pass  # a caller that went away, dribbles or talks too much gets no answer
        finally:
            self._open -= 1
            writer.close()

    async def _page(self, path: list[bytes]) -> tuple[int, bytes]:
        if path == [b"/healthz"]:
            working = self._is_working is not None and self._is_working()
            return (200, b"ok\n") if working else (503, b"not working\n")
        if path == [b"/metrics"]:
            return 200, generate_latest(REGISTRY) + await self._temporal_metrics()
        return 404, b"only /healthz and /metrics\n"

    async def _temporal_metrics(self) -> bytes:
        """What the SDK counts; nothing before it is connected."""
        with contextlib.suppress(httpx2.HTTPError):
            async with httpx2.AsyncClient(trust_env=False, timeout=2.0) as client:
                answer = await client.get(f"http://{self.temporal_metrics_address}/metrics")
                return answer.content[:METRICS_BYTES_MAX]
        return b""


def _response(status: int, body: bytes) -> bytes:
    head = f"HTTP/1.1 {status} {PHRASES[status]}\r\nContent-Type: {TEXT}\r\n"
    return f"{head}Content-Length: {len(body)}\r\nConnection: close\r\n\r\n".encode() + body


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
