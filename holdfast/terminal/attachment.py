"""One viewer of one terminal, as its client holds it: events in order, and a way to type."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from types import TracebackType
from typing import Self

from holdfast.terminal import protocol
from holdfast.terminal.connection import Connection
from holdfast.terminal.errors import HostLost, TerminalError
from holdfast.terminal.protocol import Frame, FrameType
from holdfast.terminal.records import (
    Closed,
    Exit,
    Output,
    Resized,
    Snapshot,
    Throttled,
    ViewerEvent,
)


class Attachment:
    """Iterate for what to show; `Closed` is the last event. HostLost if the host went away.

    `mode` says how it began: `resume` (the missing bytes follow), `snapshot` (the exact screen) or
    `ring` (as much of the raw output as is kept).
    """

    def __init__(
        self,
        connection: Connection,
        channel: int,
        queue: asyncio.Queue[Frame | None],
        *,
        key: str,
        mode: str,
        automatic_credit: bool,
    ) -> None:
        self.key = key
        self.mode = mode
        self._connection = connection
        self._channel = channel
        self._queue = queue
        self._automatic_credit = automatic_credit
        self._over = False
        self._parts = bytearray()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.detach()

    def __aiter__(self) -> AsyncIterator[ViewerEvent]:
        return self

    async def __anext__(self) -> ViewerEvent:
        while not self._over:
            frame = await self._queue.get()
            if frame is None:
                self._over = True
                raise HostLost("the terminal host went away", key=self.key)
            event = self._event(frame)
            if event is None:
                continue
            self._over = isinstance(event, Closed)
            if self._automatic_credit and isinstance(event, Output):
                await self.grant(len(event.data))
            return event
        raise StopAsyncIteration

    async def write(self, data: bytes) -> None:
        """Type; only a `writer` may. Raises nothing if the program is over: `Closed` will tell."""
        for start in range(0, len(data), protocol.INPUT_BYTES_MAX):
            part = data[start : start + protocol.INPUT_BYTES_MAX]
            await self._connection.send(protocol.encode(FrameType.INPUT, self._channel, part))

    async def resize(self, *, cols: int, rows: int) -> None:
        """Give the terminal a new size."""
        await self._connection.call("resize", key=self.key, cols=cols, rows=rows)

    async def grant(self, amount: int) -> None:
        """Allow the host to send `amount` bytes more."""
        await self._connection.send(protocol.encode_credit(self._channel, amount))

    async def detach(self) -> None:
        """Stop watching; the terminal goes on."""
        self._over = True
        self._connection.close_channel(self._channel)
        with contextlib.suppress(TerminalError):
            await self._connection.call("detach", channel=self._channel)

    def _event(self, frame: Frame) -> ViewerEvent | None:
        if frame.type is FrameType.OUTPUT:
            return Output(*protocol.decode_output(frame.payload))
        if frame.type is FrameType.SNAPSHOT:
            return self._snapshot(frame.payload)
        raw = frame.json()
        match raw["event"]:
            case "throttled":
                return Throttled(raw["from_seq"], raw["to_seq"])
            case "resized":
                return Resized(raw["cols"], raw["rows"])
            case "closed":
                return Closed(Exit.from_json(raw["exit"]))
            case _:
                # A newer host may tell more than this client knows.
                return None

    def _snapshot(self, payload: bytes) -> Snapshot | None:
        layout = protocol.SNAPSHOT
        seq, total, cols, rows, lines, exact = protocol.unpack(layout, payload)
        self._parts += payload[layout.size :]
        if len(self._parts) < total:
            return None
        data, self._parts = bytes(self._parts), bytearray()
        return Snapshot(seq, data, cols, rows, lines, bool(exact))
