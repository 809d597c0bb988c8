"""One open connection of a client to the terminal host: requests, replies and channels."""

import asyncio
import contextlib
import itertools
from typing import Any

from holdfast.terminal import protocol
from holdfast.terminal.errors import HostLost, VersionMismatch, from_wire
from holdfast.terminal.protocol import Frame, FrameType, ProtocolError, encode_json

REPLY_TIMEOUT_S = 60.0


class Connection:
    """Answers find their requests by number, frames their channel's queue; None ends a queue."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._numbers = itertools.count(1)
        self._channels = itertools.count(1)
        self._replies: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._queues: dict[int, asyncio.Queue[Frame | None]] = {}
        self.greeting: dict[str, Any] = {}
        self._task = asyncio.create_task(self._read(), name="terminal-connection")

    @classmethod
    async def open(cls, socket_path: str) -> "Connection":
        """Connect and agree on a version; OSError if nobody listens."""
        return await cls.begin(*await asyncio.open_unix_connection(socket_path))

    @classmethod
    async def begin(
        cls, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> "Connection":
        """Agree on a version over a connection that is there."""
        connection = cls(reader, writer)
        try:
            connection.greeting = await connection.call("hello", versions=[protocol.VERSION])
        except BaseException:
            await connection.close()
            raise
        return connection

    @property
    def alive(self) -> bool:
        """Whether the host can still answer here."""
        return not self._task.done()

    async def call(
        self, op: str, *, timeout_s: float | None = REPLY_TIMEOUT_S, **arguments: Any
    ) -> Any:
        """The result of one request, or the TerminalError the host answered."""
        number = next(self._numbers)
        reply: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        if not self.alive:
            raise HostLost("the connection to the terminal host is closed")
        self._replies[number] = reply
        request = {"id": number, "op": op, **arguments}
        try:
            await self.send(encode_json(FrameType.REQUEST, 0, request))
            async with asyncio.timeout(timeout_s):
                answer = await reply
        except TimeoutError as error:
            raise HostLost(f"the terminal host did not answer {op} in time") from error
        finally:
            self._replies.pop(number, None)
        if "error" in answer:
            raise from_wire(answer["error"])
        return answer.get("result")

    async def send(self, data: bytes) -> None:
        """Send one encoded frame, waiting while the host is slow to read."""
        try:
            self._writer.write(data)
            await self._writer.drain()
        except OSError as error:
            raise HostLost("the connection to the terminal host broke") from error

    def open_channel(self) -> tuple[int, asyncio.Queue[Frame | None]]:
        """A new channel number and the queue that its frames will come through."""
        channel = next(self._channels)
        queue: asyncio.Queue[Frame | None] = asyncio.Queue()
        self._queues[channel] = queue
        return channel, queue

    def close_channel(self, channel: int) -> None:
        """Forget a channel; frames still under way for it are dropped."""
        self._queues.pop(channel, None)

    async def close(self) -> None:
        """End the connection; everybody who waits is told."""
        self._task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._task
        self._writer.close()
        with contextlib.suppress(OSError):
            await self._writer.wait_closed()

    async def _read(self) -> None:
        try:
            while frame := await protocol.read_frame(self._reader):
                self._take(frame)
        except ProtocolError as error:
            self._end(VersionMismatch(f"the terminal host speaks another language: {error}"))
        finally:
            self._end(HostLost("the connection to the terminal host broke"))

    def _take(self, frame: Frame) -> None:
        if frame.type is FrameType.REPLY:
            reply = frame.json()
            waiting = self._replies.get(int(reply.get("id", 0)))
            if waiting is not None and not waiting.done():
                waiting.set_result(reply)
        elif (queue := self._queues.get(frame.channel)) is not None:
            queue.put_nowait(frame)

    def _end(self, error: Exception) -> None:
        for reply in self._replies.values():
            if not reply.done():
                reply.set_exception(error)
        self._replies.clear()
        for queue in self._queues.values():
            queue.put_nowait(None)
        self._queues.clear()
