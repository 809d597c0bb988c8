"""`SessionStream` for asyncio: the same frames, to be iterated with `async for`."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator
from typing import Any, Self

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed

from holdfast.client.frames import Frame, frame_text
from holdfast.client.session_socket import LOST, SessionSocket


class AsyncSessionStream:
    """Iterate over it for frames; `send` acts; `close` ends the iteration from any task.

    Cancelling the task that iterates closes the socket.
    """

    def __init__(self, socket: SessionSocket) -> None:
        self._socket = socket
        self._connection: ClientConnection | None = None
        self._closing = asyncio.Event()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def __aiter__(self) -> AsyncGenerator[Frame, None]:
        while not self._closing.is_set():
            lost: Exception | None = None
            try:
                async with contextlib.aclosing(self._frames()) as frames:
                    async for frame in frames:
                        yield frame
                        if frame.is_last:
                            return
            except LOST as error:
                lost = error
            if not self._closing.is_set():
                pause_s = self._socket.pause_s(lost)
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(pause_s):
                        await self._closing.wait()

    @property
    def seen(self) -> dict[str, int]:
        """The last seq of each channel: `resume_from` of a stream that goes on after this one."""
        return self._socket.seen

    async def send(self, channel: str, kind: str, payload: dict[str, Any]) -> bool:
        """Send one frame; False when there is no connection at the moment."""
        connection = self._connection
        if connection is None:
            return False
        try:
            await connection.send(frame_text(channel, kind, payload))
        except (OSError, ConnectionClosed):
            return False
        return True

    async def close(self) -> None:
        """End the stream cleanly."""
        self._closing.set()
        if (connection := self._connection) is not None:
            await connection.close()

    async def _frames(self) -> AsyncGenerator[Frame, None]:
        async with connect(self._socket.address, **self._socket.options) as connection:
            self._connection = connection
            try:
                if self._closing.is_set():
                    return
                await connection.send(self._socket.hello())
                async for data in connection:
                    if (frame := self._socket.read(data)) is not None:
                        yield frame
            finally:
                self._connection = None
                # The server should see a clean close (1000) also when the reader was cancelled.
                await connection.close()
