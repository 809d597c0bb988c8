"""One client on a session's socket: hello, welcome, what it missed, then live, until it ends."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from typing import Any

from starlette.websockets import WebSocket, WebSocketDisconnect

from api.services import Services
from api.stream.attached import Attached, welcome
from api.stream.frames import BadFrame, Hello, read_binary_stdin, read_frame, read_hello
from api.stream.outgoing import Sent, frame_text
from api.stream.protocol import TIMEOUT_REASON
from api.stream.ptys import PtyBridge
from api.stream.tail import Channel, Gap, Tail
from holdfast.domain.errors import Refusal
from holdfast.domain.lifecycle import OVER, State
from holdfast.storage.database.tables import Operator
from holdfast.storage.sessions import sessions

HELLO_S = 10.0
SEND_S = 15.0
# What is written in one go and waits for a slow client; a single larger frame goes alone.
WRITTEN_BYTES_MAX = 64 * 1024
BAD_FRAMES_MAX = 100
FAREWELL_S = 1.0
GAP_CODE, BAD_CODE, HELLO_CODE, NORMAL_CODE, AGAIN_CODE = 4409, 4400, 4408, 1000, 1013
CLEAN_CODES = frozenset({1000, 1001, 1005})


class TooSlow(Exception):
    """The client takes nothing any more."""


class Closed(Exception):
    """The socket is over; `reason` is what the audit log says."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class Connection:
    """Everything is pulled by seq at the client's own pace; a slow one delays nobody."""

    def __init__(
        self,
        websocket: WebSocket,
        services: Services,
        session_id: str,
        operator: Operator,
        *,
        observer: bool,
    ) -> None:
        self.services = services
        self.session_id = session_id
        self.operator = operator
        self.observer = observer
        self.hello = Hello()
        self.came = False
        self._websocket = websocket
        self._sending = asyncio.Lock()
        self._bad_frames = 0
        self._over = False
        self._seqs: dict[str, int] = {"output": 0, "events": 0}
        self._ptys = PtyBridge(self)

    async def serve(self) -> str:
        """Talk until one side is done; why it ended: clean, timeout or error."""
        try:
            hello = await self._first_frame()
            if hello is None:
                return "error"
            self.hello = hello
            async with self.services.hub.tail(self.session_id) as tail:
                return await self._talk(tail)
        except Closed as closed:
            return closed.reason
        except (WebSocketDisconnect, TooSlow):
            return "error"
        except Refusal as refusal:
            await self._close(AGAIN_CODE, refusal.code)
            return "error"

    async def send_text(self, text: str) -> None:
        """Send one frame; TooSlow when the client takes nothing for long."""
        await self._send({"type": "websocket.send", "text": text})

    async def send_bytes(self, data: bytes) -> None:
        """Send one binary frame."""
        await self._send({"type": "websocket.send", "bytes": data})

    async def send_error(self, code: str, message: str) -> None:
        """Tell the client what was wrong with its frame; the connection stays."""
        await self.send_text(frame_text("control", "error", {"code": code, "message": message}))

    # -- the beginning ---------------------------------------------------------------------------

    async def _first_frame(self) -> Hello | None:
        try:
            async with asyncio.timeout(HELLO_S):
                message = await self._receive()
        except TimeoutError:
            await self._close(HELLO_CODE, "hello_timeout")
            return None
        try:
            if message.get("text") is None:
                raise BadFrame("the first frame must be control hello", "hello_expected")
            return read_hello(read_frame(message["text"]))
        except BadFrame as error:
            await self.send_error(error.code, str(error))
            await self._close(BAD_CODE, error.code)
            return None

    async def _talk(self, tail: Tail) -> str:
        attached = await self._attach()
        if attached.gap(self.hello):
            await self._close(GAP_CODE, "resume_failed")
            return "error"
        self._over = State(attached.session["state"]) in OVER
        self._seqs = attached.start(self.hello)
        await self.send_text(frame_text("control", "welcome", attached.payload()))
        await self._ptys.start(attached.ptys)
        pump = asyncio.create_task(self._pump(tail))
        listen = asyncio.create_task(self._listen())
        try:
            await asyncio.wait({pump, listen}, return_when=asyncio.FIRST_COMPLETED)
            if not listen.done() and isinstance(pump.exception(), WebSocketDisconnect):
                # The pump fell over a client that left; the other side knows how it left.
                await asyncio.wait({listen}, timeout=FAREWELL_S)
            return await (listen if listen.done() else pump)
        finally:
            for task in (pump, listen):
                task.cancel()
            await asyncio.gather(pump, listen, return_exceptions=True)
            await self._ptys.stop()

    async def _attach(self) -> Attached:
        """What the client finds; an operator's coming is an event, an observer's is not."""
        hint = self.hello.device_hint
        user_id = None if self.observer else self.operator.id
        store = self.services.store
        if user_id is None:
            return await store.aread(lambda db: welcome(db, self.session_id))
        self.came = True
        return await store.awrite(
            lambda db: welcome(db, self.session_id, user_id=user_id, device_hint=hint)
        )

    # -- towards the client ----------------------------------------------------------------------

    async def _pump(self, tail: Tail) -> str:
        try:
            while True:
                rung = tail.rung
                # Events are read first and sent last: what was said before an event is seen
                # before it, so nobody stops reading at `run.completed` and misses the end.
                happened = await tail.read("events", self._seqs["events"])
                said = await self._send_output(tail)
                await self._send_frames("events", happened)
                if happened or said:
                    continue
                if self._over and await self._is_over():
                    await self._close(NORMAL_CODE, "session_ended")
                    return "clean"
                await tail.wait(rung)
        except (Gap, TooSlow):
            await self._close(GAP_CODE, "resume_failed")
            return "error"

    async def _send_output(self, tail: Tail) -> int:
        count = 0
        while frames := await tail.read("output", self._seqs["output"]):
            await self._send_frames("output", frames)
            count += len(frames)
        return count

    async def _send_frames(self, channel: Channel, frames: list[Sent]) -> None:
        for some in _portions(frames):
            await self._send({"type": "websocket.send", "wire": b"".join(one.wire for one in some)})
            self._seqs[channel] = some[-1].seq
            for frame in some:
                self._over = self._over or frame.over
                if frame.pty_id is not None:
                    await self._ptys.watch(frame.pty_id)

    async def _is_over(self) -> bool:
        """Now, not when the event was written: a session may have been reopened."""
        row = await self.services.store.aread(lambda db: sessions.find(db, self.session_id))
        self._over = row is None or State(row.state) in OVER
        return self._over

    async def _send(self, message: dict[str, Any]) -> None:
        async with self._sending:
            try:
                async with asyncio.timeout(SEND_S):
                    await self._websocket.send(message)
            except TimeoutError:
                raise TooSlow from None
            except (RuntimeError, OSError) as error:
                raise WebSocketDisconnect(1006) from error

    async def _close(self, code: int, reason: str) -> None:
        """Say why, then close; a client that takes neither is cut off by the protocol."""
        closing = frame_text("control", "closing", {"code": reason, "reason": reason})
        with contextlib.suppress(TimeoutError, RuntimeError, OSError, WebSocketDisconnect):
            async with asyncio.timeout(2.0):
                await self._websocket.send_text(closing)
                await self._websocket.close(code, reason)

    # -- from the client -------------------------------------------------------------------------

    async def _receive(self) -> dict[str, Any]:
        message = dict(await self._websocket.receive())
        if message["type"] == "websocket.disconnect":
            raise Closed(_why(message))
        return message

    async def _listen(self) -> str:
        while True:
            message = await self._receive()
            try:
                await self._take(message)
            except BadFrame as error:
                self._bad_frames += 1
                if self._bad_frames > BAD_FRAMES_MAX:
                    await self._close(BAD_CODE, "too_many_bad_frames")
                    return "error"
                await self.send_error(error.code, str(error))
            except TooSlow:
                await self._close(GAP_CODE, "resume_failed")
                return "error"

    async def _take(self, message: dict[str, Any]) -> None:
        if message.get("text") is None:
            if not self.hello.binary_pty:
                raise BadFrame("binary frames need binary_pty in hello")
            await self._ptys.stdin(*read_binary_stdin(message.get("bytes") or b""))
            return
        frame = read_frame(message["text"])
        if frame.channel == "pty":
            await self._ptys.take(frame)
        elif (frame.channel, frame.type) == ("control", "ping"):
            await self.send_text(frame_text("control", "pong", frame.payload))
        elif frame.channel == "control":
            raise BadFrame(f"unknown control frame {frame.type[:40]!r}", "unknown_type")
        else:
            raise BadFrame(f"nothing can be sent on {frame.channel[:40]!r}", "unknown_channel")


def _portions(frames: list[Sent]) -> Iterator[list[Sent]]:
    """The frames in order, in portions that a socket's buffer may hold."""
    some: list[Sent] = []
    size = 0
    for frame in frames:
        if some and size + len(frame.wire) > WRITTEN_BYTES_MAX:
            yield some
            some, size = [], 0
        some.append(frame)
        size += len(frame.wire)
    if some:
        yield some


def _why(message: dict[str, Any]) -> str:
    if message.get("reason") == TIMEOUT_REASON:
        return "timeout"
    # A connection that was lost has a code too, but nobody gave a reason for it.
    clean = message.get("code") in CLEAN_CODES and "reason" in message
    return "clean" if clean else "error"
