"""A session's frames that reconnect by themselves and neither miss nor repeat one."""

from __future__ import annotations

import threading
from collections.abc import Generator
from typing import Any, Self

from websockets.exceptions import ConnectionClosed
from websockets.sync.client import ClientConnection, connect

from holdfast.client.frames import Frame, frame_text
from holdfast.client.session_socket import LOST, SessionSocket


class SessionStream:
    """Iterate over it for frames; `send` acts; `close` ends the iteration from any thread."""

    def __init__(self, socket: SessionSocket) -> None:
        self._socket = socket
        self._connection: ClientConnection | None = None
        self._closing = threading.Event()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __iter__(self) -> Generator[Frame, None, None]:
        while not self._closing.is_set():
            lost: Exception | None = None
            try:
                for frame in self._frames():
                    yield frame
                    if frame.is_last:
                        return
            except LOST as error:
                lost = error
            if not self._closing.is_set():
                self._closing.wait(self._socket.pause_s(lost))

    @property
    def seen(self) -> dict[str, int]:
        """The last seq of each channel: `resume_from` of a stream that goes on after this one."""
        return self._socket.seen

    def send(self, channel: str, kind: str, payload: dict[str, Any]) -> bool:
        """Send one frame; False when there is no connection at the moment."""
        connection = self._connection
        if connection is None:
            return False
        try:
            connection.send(frame_text(channel, kind, payload))
        except (OSError, ConnectionClosed):
            return False
        return True

    def close(self) -> None:
        """End the stream cleanly."""
        self._closing.set()
        if (connection := self._connection) is not None:
            connection.close()

    def _frames(self) -> Generator[Frame, None, None]:
        with connect(self._socket.address, **self._socket.options) as connection:
            self._connection = connection
            try:
                if self._closing.is_set():
                    return
                connection.send(self._socket.hello())
                for data in connection:
                    if (frame := self._socket.read(data)) is not None:
                        yield frame
            finally:
                self._connection = None
                # The server should see a clean close (1000) also when the reader was cancelled.
                connection.close()
