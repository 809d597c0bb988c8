"""A small HTTP server in a thread that records requests and notices when a client goes away."""

from __future__ import annotations

import asyncio
import contextlib
import json
import threading
import time
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self

BODY_BYTES_MAX = 64 * 1024 * 1024
REQUESTS_MAX = 10_000
START_TIMEOUT_S = 30.0
REASONS = {200: "OK", 400: "Bad Request", 401: "Unauthorized", 404: "Not Found"}


@dataclass
class Recorded:
    """One request and what became of it; times are of `time.perf_counter`."""

    method: str
    path: str
    headers: dict[str, str]
    body: Any
    received_at: float
    first_byte_at: float | None = None
    pieces_sent: int = 0
    finished: bool = False
    # Set when the client closed the connection before the answer was complete.
    abandoned: threading.Event = field(default_factory=threading.Event)
    done: threading.Event = field(default_factory=threading.Event)


class Reply:
    """The answer being written to one request."""

    def __init__(self, writer: asyncio.StreamWriter, recorded: Recorded) -> None:
        self._writer = writer
        self._recorded = recorded
        self._streaming = False

    async def json(self, status: int, value: Any, **headers: str) -> None:
        """Answer at once with a JSON body."""
        body = json.dumps(value).encode()
        self._head(status, {"content-type": "application/json", **headers}, length=len(body))
        await self._write(body)

    async def open_stream(self) -> None:
        """Start an event stream; each `send` is one chunk of it."""
        self._streaming = True
        self._head(200, {"content-type": "text/event-stream"}, length=None)
        await self._writer.drain()

    async def send(self, text: str) -> None:
        """Write one chunk of the event stream."""
        body = text.encode()
        await self._write(f"{len(body):x}\r\n".encode() + body + b"\r\n")
        self._recorded.pieces_sent += 1

    async def close_stream(self) -> None:
        """End the event stream properly."""
        await self._write(b"0\r\n\r\n")

    def drop(self) -> None:
        """Break the connection off in the middle."""
        transport = self._writer.transport
        transport.abort()
        raise ConnectionAbortedError("dropped on purpose")

    def _head(self, status: int, headers: dict[str, str], *, length: int | None) -> None:
        size = {"transfer-encoding": "chunked"} if length is None else {"content-length": length}
        lines = [f"HTTP/1.1 {status} {REASONS.get(status, 'Scripted')}"]
        lines += [
            f"{name.replace('_', '-')}: {value}" for name, value in {**headers, **size}.items()
        ]
        self._writer.write("\r\n".join([*lines, "", ""]).encode())

    async def _write(self, data: bytes) -> None:
        if self._recorded.first_byte_at is None:
            self._recorded.first_byte_at = time.perf_counter()
        self._writer.write(data)
        await self._writer.drain()


Handler = Callable[[Recorded, Reply], Awaitable[None]]


class HttpStub:
    """Serves `handle` on a free loopback port, on an event loop of its own, until stopped."""

    def __init__(self) -> None:
        self.requests: deque[Recorded] = deque(maxlen=REQUESTS_MAX)
        self.port = 0
        self.connections = 0
        self._loop = asyncio.new_event_loop()
        self._stop = asyncio.Event()
        self._started = threading.Event()
        self._arrived = threading.Condition()
        self._thread = threading.Thread(target=self._run, name="stub", daemon=True)

    async def handle(self, recorded: Recorded, reply: Reply) -> None:
        """Answer one request; a subclass knows the dialect."""
        raise NotImplementedError

    def start(self) -> Self:
        """Serve from now on; returns once the port is open."""
        self._thread.start()
        assert self._started.wait(START_TIMEOUT_S), "the stub did not start"
        return self

    def wait_for_requests(self, count: int) -> bool:
        """Block until that many requests have come in; false after half a minute."""
        with self._arrived:
            return self._arrived.wait_for(lambda: len(self.requests) >= count, START_TIMEOUT_S)

    def stop(self) -> None:
        """Close every connection and end the thread."""
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(START_TIMEOUT_S)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def _run(self) -> None:
        try:
            self._loop.run_until_complete(self._serve())
        finally:
            self._loop.close()

    async def _serve(self) -> None:
        tasks: set[asyncio.Task[None]] = set()

        def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            self.connections += 1
            task = self._loop.create_task(self._converse(reader, writer))
            tasks.add(task)
            task.add_done_callback(tasks.discard)

        server = await asyncio.start_server(accept, "127.0.0.1", 0, backlog=512)
        self.port = server.sockets[0].getsockname()[1]
        self._started.set()
        await self._stop.wait()
        server.close()
        for task in list(tasks):
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _converse(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
                while (recorded := await self._next(reader)) is not None:
                    with self._arrived:
                        self.requests.append(recorded)
                        self._arrived.notify_all()
                    if not await self._answer(recorded, reader, writer):
                        break
        finally:
            # At once and without a flush: the client may be gone.
            writer.transport.abort()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()

    async def _next(self, reader: asyncio.StreamReader) -> Recorded | None:
        head = await reader.readuntil(b"\r\n\r\n")
        first, *lines = head.decode("latin-1").split("\r\n")
        method, path, _ = first.split(" ", 2)
        pairs = (line.split(":", 1) for line in lines if ":" in line)
        headers = {name.strip().lower(): value.strip() for name, value in pairs}
        length = int(headers.get("content-length", "0"))
        assert length <= BODY_BYTES_MAX, "the request is too large for the stub"
        raw = await reader.readexactly(length)
        body = json.loads(raw) if raw else None
        return Recorded(method, path, headers, body, time.perf_counter())

    async def _answer(
        self, recorded: Recorded, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> bool:
        """Whether the connection may carry another request."""
        answering = asyncio.ensure_future(self.handle(recorded, Reply(writer, recorded)))
        # No client sends anything while it waits: what arrives is the end of the connection.
        leaving = asyncio.ensure_future(reader.read(1))
        try:
            await asyncio.wait({answering, leaving}, return_when=asyncio.FIRST_COMPLETED)
            if not answering.done():
                recorded.abandoned.set()
                return False
            answering.result()
            recorded.finished = True
            return not leaving.done()
        except ConnectionError:
            return False
        finally:
            for task in (answering, leaving):
                task.cancel()
            await asyncio.gather(answering, leaving, return_exceptions=True)
            recorded.done.set()
