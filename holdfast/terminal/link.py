"""One client's connection as the host sees it: requests answered, viewers fed, events passed on."""

import asyncio
import base64
import contextlib
import logging
import os
from collections.abc import Awaitable, Callable
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from holdfast.terminal import protocol
from holdfast.terminal.errors import (
    BadRequest,
    HostRestarted,
    LimitReached,
    TerminalError,
    VersionMismatch,
    to_wire,
)
from holdfast.terminal.process import HostedProcess
from holdfast.terminal.protocol import Frame, FrameType, ProtocolError, encode_json
from holdfast.terminal.records import ProcessState, Reason, SpawnRequest
from holdfast.terminal.registry import GRACE_S
from holdfast.terminal.viewer import Reader, Viewer, Watcher

if TYPE_CHECKING:
    from holdfast.terminal.host import Host

logger = logging.getLogger(__name__)

CONGESTION_BYTES = 1024 * 1024
EVENTS_BACKLOG_BYTES = 8 * 1024 * 1024
HELLO_TIMEOUT_S = 10.0
PROCESSES_LISTED_MAX = 500
SHUTDOWN_DELAY_S = 0.01
TRANSCRIPT_PIECE_BYTES = 512 * 1024


class Link:
    """Serves one client until it goes away; its processes do not notice."""

    def __init__(
        self,
        host: "Host",
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        *,
        caller: str,
    ) -> None:
        self._host = host
        self.caller = caller  # of another machine, by its certificate; empty: of this one
        self._reader = reader
        self._writer = writer
        self._viewers: dict[int, Viewer] = {}
        self._subscriptions: dict[int, str | None] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._operations: dict[str, Callable[[dict[str, Any]], Awaitable[Any]]] = {
            "spawn": self._spawn,
            "info": self._info,
            "list": self._list,
            "wait": self._wait,
            "read": self._read,
            "attach": self._attach,
            "detach": self._detach,
            "subscribe": self._subscribe,
            "text": self._text,
            "resize": self._resize,
            "write": self._write,
            "suspend": self._suspend,
            "resume": self._resume,
            "kill": self._kill,
            "close": self._close,
            "transcript": self._transcript,
            "host": self._about,
            "shutdown": self._shutdown,
        }

    async def serve(self) -> None:
        """Answer until the client goes away."""
        async with asyncio.timeout(HELLO_TIMEOUT_S):
            hello = await protocol.read_frame(self._reader)
        if hello is None or not self._greet(hello):
            return
        while frame := await protocol.read_frame(self._reader):
            self._take(frame)

    def close(self) -> None:
        """Forget the client; its processes go on."""
        for viewer in tuple(self._viewers.values()):
            viewer.close()
        self._viewers.clear()
        self._subscriptions.clear()
        for task in self._tasks:
            task.cancel()
        self._writer.close()

    def tell(self, event: str, process: HostedProcess, details: dict[str, Any]) -> None:
        """Pass on an event to those of the client's subscriptions that want it."""
        for channel, session_id in self._subscriptions.items():
            if session_id in (None, process.request.session_id):
                if self._backlog() > EVENTS_BACKLOG_BYTES:
                    # It does not read; a list when it comes back tells it more than old events.
                    self._writer.transport.abort()
                    return
                message = {"event": event, "info": asdict(process.info()), "details": details}
                self._send(encode_json(FrameType.EVENT, channel, message))

    def _greet(self, frame: Frame) -> bool:
        request = frame.json()
        versions = request.get("versions")
        if frame.type is not FrameType.REQUEST or request.get("op") != "hello":
            raise ProtocolError("the first frame is not a hello")
        offered = versions if isinstance(versions, list) else []
        common = [version for version in protocol.VERSIONS_SERVED if version in offered]
        if common:
            about = {"version": max(common), "pid": os.getpid(), **asdict(self._host.identity)}
            self._reply(request, result=about)
        else:
            served = list(protocol.VERSIONS_SERVED)
            error = VersionMismatch(f"this host speaks the versions {served}", served=served)
            self._reply(request, error=to_wire(error))
        return bool(common)

    def _take(self, frame: Frame) -> None:
        viewer = self._viewers.get(frame.channel)
        if frame.type is FrameType.REQUEST:
            request = frame.json()
            if len(self._tasks) >= protocol.REQUESTS_OPEN_MAX:
                self._reply(request, error=to_wire(LimitReached("too many requests at once")))
                return
            task = asyncio.create_task(self._answer(request))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        elif viewer is None:
            # It was closed while this frame was under way.
            return
        elif frame.type is FrameType.CREDIT:
            viewer.grant(protocol.decode_credit(frame.payload))
        elif frame.type is FrameType.INPUT and viewer.writes:
            with contextlib.suppress(TerminalError):
                viewer.process.write(frame.payload)

    async def _answer(self, request: dict[str, Any]) -> None:
        try:
            operation = self._operations.get(str(request.get("op")))
            if operation is None:
                raise BadRequest(f"there is no operation {request.get('op')}")
            result = await operation(request)
        except TerminalError as error:
            self._reply(request, error=to_wire(error))
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            logger.info("a request could not be read", exc_info=True)
            self._reply(request, error=to_wire(BadRequest(f"not a valid request: {error!r}")))
        except Exception as error:
            # Whoever asked must not wait for an answer that never comes.
            logger.exception("a request failed")
            self._reply(request, error=to_wire(TerminalError(f"the host failed: {error!r}")))
        else:
            self._reply(request, result=result)

    async def _spawn(self, request: dict[str, Any]) -> Any:
        wanted = SpawnRequest.from_json(request["request"])
        self._check_epoch(request)
        process, created = await self._host.registry.spawn(wanted)
        return asdict(process.info(created=created))

    def _check_epoch(self, request: dict[str, Any]) -> None:
        """What was asked of an earlier life of this host must not be started by this one."""
        epoch, ours = request.get("epoch"), self._host.identity.epoch
        if epoch not in (None, ours):
            raise HostRestarted(f"the terminal host was started anew: its epoch is {ours} now")

    async def _info(self, request: dict[str, Any]) -> Any:
        return asdict(self._process(request).info())

    async def _list(self, request: dict[str, Any]) -> Any:
        found = self._host.registry.select(
            run_id=request.get("run_id"), session_id=request.get("session_id")
        )
        if request.get("alive"):
            found = [process for process in found if process.exit is None]
        # One frame must hold them all; the newest are the ones that matter.
        return [asdict(process.info()) for process in found[-PROCESSES_LISTED_MAX:]]

    async def _wait(self, request: dict[str, Any]) -> Any:
        return asdict(await asyncio.shield(self._process(request).over))

    async def _read(self, request: dict[str, Any]) -> Any:
        process, channel = self._process(request), self._channel(request)
        seq = max(0, int(request["seq"]))
        reader = Reader(process, channel, seq=seq, send=self._send, congested=self._is_congested)
        self._viewers[channel] = reader
        return "read"

    async def _attach(self, request: dict[str, Any]) -> Any:
        watcher = Watcher(
            self._process(request),
            channel := self._channel(request),
            self._host.screens,
            writes=request.get("role") == "writer",
            on_throttled=self._throttled,
            send=self._send,
            congested=self._is_congested,
        )
        self._viewers[channel] = watcher
        return watcher.begin(request.get("seq"), history=bool(request.get("history", True)))

    async def _detach(self, request: dict[str, Any]) -> Any:
        viewer = self._viewers.pop(int(request["channel"]), None)
        if viewer is not None:
            viewer.close()
        self._subscriptions.pop(int(request["channel"]), None)

    async def _subscribe(self, request: dict[str, Any]) -> Any:
        self._subscriptions[self._channel(request)] = request.get("session_id")

    async def _text(self, request: dict[str, Any]) -> Any:
        process = self._process(request)
        screen = process.screen
        text = None if screen is None else await self._host.screens.text(screen)
        if text is None:
            ring = process.ring
            start = max(ring.start, ring.end - 16 * 1024)
            text = ring.read(start, 16 * 1024).decode(errors="replace")
        return text

    async def _resize(self, request: dict[str, Any]) -> Any:
        self._process(request).resize(int(request["cols"]), int(request["rows"]))

    async def _write(self, request: dict[str, Any]) -> Any:
        self._process(request).write(request["data"].encode("latin-1"))

    async def _suspend(self, request: dict[str, Any]) -> Any:
        processes = self._selected(request)
        pids = await asyncio.gather(*(process.suspend() for process in processes))
        return suspension(processes, pids)

    async def _resume(self, request: dict[str, Any]) -> Any:
        processes = self._selected(request)
        pids = await asyncio.gather(*(process.resume() for process in processes))
        return suspension(processes, pids)

    async def _kill(self, request: dict[str, Any]) -> Any:
        processes = self._selected(request)
        reason = Reason(request.get("reason", Reason.CANCELLED))
        grace_s = min(max(float(request.get("grace_s", GRACE_S)), 0.0), 60.0)
        await asyncio.gather(*(process.kill(reason, grace_s) for process in processes))
        return [process.key for process in processes]

    async def _close(self, request: dict[str, Any]) -> Any:
        return asdict(await self._host.registry.close(str(request["key"])))

    async def _transcript(self, request: dict[str, Any]) -> Any:
        """A piece of the transcript's file, as base64; an empty one at its end."""
        process, offset = self._process(request), int(request["offset"])
        piece = await asyncio.to_thread(process.transcript_piece, offset, TRANSCRIPT_PIECE_BYTES)
        return base64.b64encode(piece).decode("ascii")

    async def _about(self, _: dict[str, Any]) -> Any:
        found = self._host.registry.machine_cage()
        works = found.kind != "none"
        return {
            "pid": os.getpid(),
            "version": protocol.VERSION,
            **asdict(self._host.identity),
            "processes": len(self._host.registry.live),
            "clients": len(self._host.links),
            "screens": self._host.screens.pid,
            "cage": (found.program or found.kind) if works else "",
            "cage_unavailable": "" if works else found.why,
            "machine_cage": asdict(found),
        }

    async def _shutdown(self, request: dict[str, Any]) -> Any:
        if self.caller:
            raise BadRequest("only its own machine ends a terminal host")
        if self._host.registry.live and not request.get("force"):
            raise LimitReached("processes are still running", live=len(self._host.registry.live))
        await self._host.registry.end_all()
        # After this answer is written.
        asyncio.get_running_loop().call_later(SHUTDOWN_DELAY_S, self._host.stopping.set)

    def _process(self, request: dict[str, Any]) -> HostedProcess:
        return self._host.registry.get(str(request["key"]))

    def _selected(self, request: dict[str, Any]) -> list[HostedProcess]:
        by = {name: request.get(name) for name in ("key", "run_id", "session_id")}
        if not any(by.values()):
            raise BadRequest("say which: key, run_id or session_id")
        found = self._host.registry.select(**by)
        return [process for process in found if process.state is not ProcessState.EXITED]

    def _channel(self, request: dict[str, Any]) -> int:
        channel = int(request["channel"])
        taken = channel in self._viewers or channel in self._subscriptions
        if taken or len(self._viewers) + len(self._subscriptions) >= protocol.CHANNELS_MAX:
            raise LimitReached(f"a connection has at most {protocol.CHANNELS_MAX} channels")
        return channel

    def _throttled(self, process: HostedProcess, from_seq: int, to_seq: int) -> None:
        self._host.announce("throttled", process, {"from_seq": from_seq, "to_seq": to_seq})

    def _reply(self, request: dict[str, Any], **answer: Any) -> None:
        self._send(encode_json(FrameType.REPLY, 0, {"id": request.get("id"), **answer}))

    def _send(self, data: bytes) -> None:
        if not self._writer.is_closing():
            self._writer.write(data)

    def _backlog(self) -> int:
        return self._writer.transport.get_write_buffer_size()

    def _is_congested(self) -> bool:
        return self._backlog() > CONGESTION_BYTES


def suspension(processes: list[HostedProcess], pids: list[list[int]]) -> dict[str, Any]:
    """The answer to suspend and resume; a tree that could not be verified was an error before."""
    found = [pid for tree in pids for pid in tree]
    return {"keys": [process.key for process in processes], "pids": found, "verified": True}
