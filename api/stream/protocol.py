"""uvicorn's WebSocket protocol, told apart by why a connection ended, and never left hanging."""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.utils import ClientDisconnected
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.protocol import State

TIMEOUT_REASON = "keepalive ping timeout"
LOST_CODE = 1006
ABORT_AFTER_S = 5.0


class SocketProtocol(WebSocketsSansIOProtocol):
    """Says `timeout` for missed pongs, and aborts a peer that takes neither data nor a close."""

    def connection_lost(self, exc: Exception | None) -> None:
        """One connection less."""
        limits = getattr(self.config, "limits", None)
        if limits is not None:
            limits.ledger.leave(self.transport)
        super().connection_lost(exc)

    def keepalive_timeout(self) -> None:
        """A pong is missing for a whole interval: two pings in a row went unanswered."""
        self.queue.put_nowait(
            {"type": "websocket.disconnect", "code": LOST_CODE, "reason": TIMEOUT_REASON}
        )
        super().keepalive_timeout()
        self._abort_later()

    async def send(self, message: Any) -> None:
        """Pass one ASGI message on. A refusal before the upgrade completes the handshake too.

        `wire` in a message holds whole WebSocket messages that were encoded once for many sockets.
        """
        if "wire" in message:
            await self._write(message["wire"])
            return
        await super().send(message)
        if message["type"] == "websocket.http.response.body" and not message.get("more_body"):
            self.handshake_complete = True

    def on_task_complete(self, task: asyncio.Task[None]) -> None:
        """The application is done with the socket; unsent bytes get a moment, not forever."""
        super().on_task_complete(task)
        self._abort_later()

    async def _write(self, wire: bytes) -> None:
        await self.writable.wait()
        if self.disconnected or self.close_sent or self.conn.state is not State.OPEN:
            raise ClientDisconnected
        self.transport.write(wire)

    def _abort_later(self) -> None:
        if not self.disconnected:
            self.loop.call_later(ABORT_AFTER_S, self.transport.abort)
