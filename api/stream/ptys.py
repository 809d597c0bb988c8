"""A session's terminals on its socket: every live one is watched, and may be typed into."""

from __future__ import annotations

import asyncio
import base64
import contextlib
from typing import TYPE_CHECKING, Any, Literal

from api.stream.frames import (
    BadFrame,
    Incoming,
    binary_snapshot,
    binary_stdout,
    read_bytes,
    read_pty_id,
    read_size,
)
from api.stream.outgoing import frame_text
from holdfast.domain.errors import Refusal
from holdfast.domain.events import PtyOutputThrottled
from holdfast.domain.transcript import LOST
from holdfast.storage.database.rows import change
from holdfast.storage.database.tables_history import Pty
from holdfast.storage.log import events
from holdfast.storage.sessions import ptys
from holdfast.terminal.client import Attachment, Closed, Output, Snapshot, TerminalClient, Throttled
from holdfast.terminal.errors import HostLost, TerminalError, UnknownProcess

if TYPE_CHECKING:
    from api.stream.connection import Connection

WATCHED_MAX = 64
HOST_WAIT_S, HOST_RETRY_S = 60.0, 0.25


class PtyBridge:
    """The terminals of one connection. Bytes go to and from the terminal host directly."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._clients: dict[str | None, TerminalClient] = {}
        self._attachments: dict[str, Attachment] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._beginning = asyncio.Lock()
        self._noted: set[str] = set()

    async def start(self, live: list[dict[str, Any]]) -> None:
        """Watch what was alive when the client came."""
        for pty in live:
            await self.watch(pty["pty_id"])

    async def stop(self) -> None:
        """Stop watching; the terminals go on."""
        for task in self._tasks.values():
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)
        for client in self._clients.values():
            with contextlib.suppress(TerminalError, OSError):
                await client.close_connection()

    async def watch(self, pty_id: str) -> None:
        """Show one terminal from now on; one that is gone by now is left out."""
        async with self._beginning:
            if pty_id in self._tasks or len(self._tasks) >= WATCHED_MAX:
                return
            with contextlib.suppress(TerminalError, Refusal, OSError):
                client = await self._host_of(pty_id)
                found = await client.attach(pty_id, role=self._role)
                self._attachments[pty_id] = found
                self._tasks[pty_id] = asyncio.create_task(self._show(pty_id, found))

    async def take(self, frame: Incoming) -> None:
        """One frame of the pty channel."""
        pty_id = read_pty_id(frame.payload)
        if frame.type == "ack":
            return  # credit is given as the socket takes the bytes
        if frame.type == "stdin":
            await self.stdin(pty_id, read_bytes(frame.payload))
        elif frame.type == "resize":
            cols, rows = read_size(frame.payload)
            await self._act((await self._writable(pty_id)).resize(cols=cols, rows=rows))
            await self._connection.services.store.awrite(
                lambda db: change(db, Pty, pty_id, cols=cols, rows=rows)
            )
        else:
            raise BadFrame(f"unknown pty frame {frame.type[:40]!r}", "unknown_type")

    async def stdin(self, pty_id: str, data: bytes) -> None:
        """Type into a terminal."""
        await self._act((await self._writable(pty_id)).write(data))

    @property
    def _role(self) -> Literal["viewer", "writer"]:
        return "viewer" if self._connection.observer else "writer"

    async def _writable(self, pty_id: str) -> Attachment:
        if self._connection.observer:
            raise BadFrame("observers only watch", "forbidden")
        if pty_id not in self._tasks and await self._is_ours(pty_id):
            # Whoever opened it may type before the event that tells of it has come round.
            await self.watch(pty_id)
        attachment = self._attachments.get(pty_id)
        if attachment is None:
            raise BadFrame("no such terminal is alive", "not_found")
        return attachment

    async def _is_ours(self, pty_id: str) -> bool:
        row = await self._connection.services.store.aread(lambda db: ptys.find(db, pty_id))
        if row is None or row.session_id != self._connection.session_id:
            return False
        return row.state != "closed"

    async def _act(self, asked: Any) -> None:
        try:
            await asked
        except (TerminalError, OSError) as error:
            raise BadFrame(str(error), "terminal_error") from None

    async def _host_of(self, pty_id: str) -> TerminalClient:
        services = self._connection.services
        row = await services.store.aread(lambda db: ptys.find(db, pty_id))
        host_id = row.host_id if row is not None else None
        if host_id not in self._clients:
            self._clients[host_id] = await services.terminals.new_client(host_id)
        return self._clients[host_id]

    async def _show(self, pty_id: str, attachment: Attachment) -> None:
        """Show it to its end; a host that went away is waited for, and tells what was lost."""
        with contextlib.suppress(TerminalError, OSError):
            while not await self._forward(pty_id, attachment):
                self._attachments.pop(pty_id, None)
                found = await self._found_again(pty_id)
                if found is None:
                    await self._closed(pty_id, LOST.reason, LOST.exit_code)
                    break
                attachment = self._attachments[pty_id] = found
        self._attachments.pop(pty_id, None)

    async def _forward(self, pty_id: str, attachment: Attachment) -> bool:
        """Whether the terminal was shown to its end; False when the host went away before."""
        try:
            async for happened in attachment:
                if isinstance(happened, Snapshot):
                    await self._note_shown(pty_id, happened)
                    await self._snapshot(pty_id, happened)
                elif isinstance(happened, Output):
                    await self._stdout(pty_id, happened)
                elif isinstance(happened, Throttled):
                    await self._note_throttled(pty_id, happened)
                elif isinstance(happened, Closed):
                    await self._closed(pty_id, happened.exit.reason.value, happened.exit.code)
        except HostLost:
            return False
        return True

    async def _found_again(self, pty_id: str) -> Attachment | None:
        """The terminal at the host that answers next; None when that one does not know it."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + HOST_WAIT_S
        while True:
            try:
                return await (await self._host_of(pty_id)).attach(pty_id, role=self._role)
            except UnknownProcess:
                return None
            except (TerminalError, Refusal, OSError):
                if loop.time() > deadline:
                    raise
            await asyncio.sleep(HOST_RETRY_S)

    async def _snapshot(self, pty_id: str, screen: Snapshot) -> None:
        if self._connection.hello.binary_pty:
            size = (screen.cols, screen.rows)
            await self._connection.send_bytes(
                binary_snapshot(pty_id, screen.seq, size, screen.data)
            )
            return
        payload = {
            "pty_id": pty_id,
            "data": base64.b64encode(screen.data).decode(),
            "cols": screen.cols,
            "rows": screen.rows,
            "seq": screen.seq,
        }
        await self._connection.send_text(frame_text("pty", "snapshot", payload))

    async def _stdout(self, pty_id: str, output: Output) -> None:
        if self._connection.hello.binary_pty:
            await self._connection.send_bytes(binary_stdout(pty_id, output.seq, output.data))
            return
        data = base64.b64encode(output.data).decode()
        payload = {"pty_id": pty_id, "data": data, "seq": output.seq}
        await self._connection.send_text(frame_text("pty", "stdout", payload))

    async def _closed(self, pty_id: str, reason: str, exit_code: int | None) -> None:
        payload = {"pty_id": pty_id, "reason": reason, "exit_code": exit_code}
        await self._connection.send_text(frame_text("pty", "closed", payload))

    async def _note_shown(self, pty_id: str, screen: Snapshot) -> None:
        """Once per connection; the screens that follow a flood are no attaching."""
        if pty_id in self._noted or self._connection.observer:
            return
        self._noted.add(pty_id)
        await self._connection.services.store.awrite(
            lambda db: ptys.shown(db, pty_id, lines=screen.lines)
        )

    async def _note_throttled(self, pty_id: str, skipped: Throttled) -> None:
        if self._connection.observer:
            return
        event = PtyOutputThrottled(pty_id=pty_id, dropped_bytes=skipped.dropped_bytes)
        session_id = self._connection.session_id
        await self._connection.services.store.awrite(
            lambda db: events.append(db, session_id, event)
        )
