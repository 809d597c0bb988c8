"""The client of the terminal host: start processes once, watch them, and survive their watchers.

Everything here may be repeated: a spawn with a known key attaches, `wait` and `output` of a
finished process answer from what the host kept, and the next call reopens a broken connection.
"""

import asyncio
import base64
import contextlib
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any, Literal, Protocol

from holdfast.terminal.attachment import Attachment
from holdfast.terminal.connection import Connection
from holdfast.terminal.errors import HostLost, HostUnavailable, TerminalError
from holdfast.terminal.identity import Identity, known
from holdfast.terminal.protocol import FrameType, decode_output, encode_credit
from holdfast.terminal.records import (
    Closed,
    Exit,
    HostEvent,
    Output,
    ProcessInfo,
    ProcessState,
    Reason,
    Resized,
    Snapshot,
    SpawnRequest,
    Suspension,
    Throttled,
    ViewerEvent,
)

__all__ = [
    "Attachment",
    "Closed",
    "Exit",
    "HostEvent",
    "Output",
    "ProcessInfo",
    "ProcessState",
    "Reason",
    "Resized",
    "Snapshot",
    "SpawnRequest",
    "Suspension",
    "TerminalClient",
    "TerminalError",
    "Throttled",
    "ViewerEvent",
]

CREDIT_BYTES = 256 * 1024
START_TIMEOUT_S = 20.0
START_POLL_S = 0.02


class Writable(Protocol):
    """Where bytes may be put."""

    def write(self, data: bytes, /) -> object:
        """Take these bytes."""

    def flush(self) -> None:
        """Let others see them."""


class TerminalClient:
    """One caller's way to the terminal host; safe to share between tasks of one event loop."""

    def __init__(
        self,
        socket_path: Path,
        *,
        state_dir: Path,
        start: bool,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.socket_path = socket_path
        self.state_dir = state_dir
        self._start = start
        self._environment = environment
        self._connection: Connection | None = None
        self._opening = asyncio.Lock()

    @classmethod
    async def connect(
        cls,
        socket_path: str | Path,
        *,
        state_dir: str | Path,
        start: bool = True,
        environment: Mapping[str, str] | None = None,
    ) -> "TerminalClient":
        """Connect; with `start`, a host is started as a detached process if none answers.

        `environment` is that of such a host; None is ours.
        """
        client = cls(
            Path(socket_path), state_dir=Path(state_dir), start=start, environment=environment
        )
        await client._live()
        return client

    async def close_connection(self) -> None:
        """Let go of the host; processes and terminals go on."""
        if self._connection is not None:
            await self._connection.close()
            self._connection = None

    async def __aenter__(self) -> "TerminalClient":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close_connection()

    async def identity(self) -> Identity:
        """Who the host is: its id, and the epoch that began when it was started."""
        greeting = (await self._live()).greeting
        if "epoch" in greeting:
            return Identity(str(greeting["id"]), int(greeting["epoch"]))
        # A host of an earlier release, still running: its successor will find the id that we file.
        return Identity(known(self.state_dir).id, int(greeting["pid"]))

    async def spawn(self, request: SpawnRequest, *, epoch: int | None = None) -> ProcessInfo:
        """Start a process, or find the one that was started under this key, running or over.

        A key whose process died with an earlier host comes back with an exit of reason `lost`.
        A host that is not in this `epoch` starts nothing: HostRestarted.
        """
        raw = await self._call("spawn", request=request.to_json(), epoch=epoch)
        return ProcessInfo.from_json(raw)

    async def info(self, key: str) -> ProcessInfo:
        """What the host knows about one process, or UnknownProcess."""
        return ProcessInfo.from_json(await self._call("info", key=key))

    async def list(
        self,
        *,
        session_id: str | None = None,
        run_id: str | None = None,
        alive: bool = False,
    ) -> list[ProcessInfo]:
        """The newest processes, oldest first, optionally of one session or run, or live ones."""
        found = await self._call("list", session_id=session_id, run_id=run_id, alive=alive)
        return [ProcessInfo.from_json(raw) for raw in found]

    async def wait(self, key: str) -> Exit:
        """How the process ended, as soon as it has; all its output is on disk by then."""
        return Exit.from_json(await self._call("wait", timeout_s=None, key=key))

    async def output(self, key: str, from_seq: int = 0) -> AsyncGenerator[tuple[int, bytes], None]:
        """Every byte from `from_seq` to the exit, as (position, bytes); the slow lose nothing."""
        connection = await self._live()
        channel, queue = connection.open_channel()
        try:
            await connection.call("read", key=key, channel=channel, seq=from_seq)
            await connection.send(encode_credit(channel, CREDIT_BYTES))
            while (frame := await queue.get()) is not None:
                if frame.type is not FrameType.OUTPUT:
                    return
                seq, data = decode_output(frame.payload)
                yield seq, data
                await connection.send(encode_credit(channel, len(data)))
            raise HostLost("the terminal host went away while output was due", key=key)
        finally:
            await _detach(connection, channel)

    async def attach(
        self,
        key: str,
        from_seq: int | None = None,
        *,
        role: Literal["writer", "viewer"] = "viewer",
        credit: int = CREDIT_BYTES,
        automatic_credit: bool = True,
        history: bool = True,
    ) -> Attachment:
        """Watch a terminal live: missing bytes if `from_seq` is still in the ring, else a snapshot.

        The host sends at most `credit` bytes ahead. With `automatic_credit` what was taken from the
        attachment is granted anew; without, call `grant` as the viewer acknowledges.
        """
        connection = await self._live()
        channel, queue = connection.open_channel()
        try:
            mode = await connection.call(
                "attach", key=key, channel=channel, seq=from_seq, role=role, history=history
            )
            await connection.send(encode_credit(channel, credit))
        except BaseException:
            await _detach(connection, channel)
            raise
        return Attachment(
            connection, channel, queue, key=key, mode=mode, automatic_credit=automatic_credit
        )

    async def events(
        self,
        *,
        session_id: str | None = None,
        when_listening: Callable[[], Awaitable[None]] | None = None,
    ) -> AsyncGenerator[HostEvent, None]:
        """What happens to processes from now on, until the connection ends (HostLost).

        `when_listening` looks at what was before: whatever happens meanwhile is told after it.
        """
        connection = await self._live()
        channel, queue = connection.open_channel()
        try:
            await connection.call("subscribe", channel=channel, session_id=session_id)
            if when_listening is not None:
                await when_listening()
            while (frame := await queue.get()) is not None:
                raw = frame.json()
                info = ProcessInfo.from_json(raw["info"])
                yield HostEvent(raw["event"], info, raw.get("details", {}))
            raise HostLost("the terminal host went away")
        finally:
            await _detach(connection, channel)

    async def snapshot_text(self, key: str) -> str:
        """The visible screen as plain text, for the model and for search."""
        return str(await self._call("text", key=key))

    async def resize(self, key: str, *, cols: int, rows: int) -> None:
        """Give the terminal a new size; its programs get SIGWINCH."""
        await self._call("resize", key=key, cols=cols, rows=rows)

    async def write(self, key: str, data: bytes) -> None:
        """Type into a terminal without watching it."""
        await self._call("write", key=key, data=data.decode("latin-1"))

    async def suspend(
        self, *, run_id: str | None = None, session_id: str | None = None, key: str | None = None
    ) -> Suspension:
        """Stop whole process trees where they are; returns once every process is seen stopped."""
        return _suspension(
            await self._call("suspend", key=key, run_id=run_id, session_id=session_id)
        )

    async def resume(
        self, *, run_id: str | None = None, session_id: str | None = None, key: str | None = None
    ) -> Suspension:
        """Let suspended process trees go on."""
        return _suspension(
            await self._call("resume", key=key, run_id=run_id, session_id=session_id)
        )

    async def kill(
        self,
        key: str | None = None,
        *,
        run_id: str | None = None,
        session_id: str | None = None,
        reason: Reason = Reason.CANCELLED,
        grace_s: float = 5.0,
    ) -> tuple[str, ...]:
        """SIGTERM, `grace_s`, SIGKILL for whole trees; returns the keys once all are over."""
        selected = {"key": key, "run_id": run_id, "session_id": session_id}
        keys = await self._call("kill", timeout_s=None, reason=reason, grace_s=grace_s, **selected)
        return tuple(str(key) for key in keys)

    async def close(self, key: str) -> Exit:
        """Kill if still running, then let the host forget screen and ring.

        The key stays used and the transcript stays on disk for a day.
        """
        return Exit.from_json(await self._call("close", timeout_s=None, key=key))

    async def transcript(self, key: str) -> Path:
        """Where the host keeps a process' whole output: a path on the host's own machine."""
        return Path((await self.info(key)).transcript)

    async def copy_transcript(self, key: str, target: Writable) -> None:
        """The whole transcript, asked of the host; TranscriptMissing where output has no file."""
        offset = 0
        while piece := base64.b64decode(await self._call("transcript", key=key, offset=offset)):
            target.write(piece)
            offset += len(piece)
        target.flush()

    async def host(self) -> dict[str, Any]:
        """The host about itself: pid, version, its processes and clients, whether cages work."""
        return dict(await self._call("host"))

    async def shutdown(self, *, force: bool = False) -> None:
        """End the host; refused while processes live unless `force`, which kills them first."""
        await self._call("shutdown", timeout_s=None, force=force)
        await self.close_connection()

    async def _call(self, op: str, *, timeout_s: float | None = 60.0, **arguments: Any) -> Any:
        return await (await self._live()).call(op, timeout_s=timeout_s, **arguments)

    async def _live(self) -> Connection:
        async with self._opening:
            if self._connection is not None and self._connection.alive:
                return self._connection
            await self.close_connection()
            self._connection = await self._open()
            return self._connection

    async def _open(self) -> Connection:
        with contextlib.suppress(OSError, HostLost):
            return await Connection.open(str(self.socket_path))
        if not self._start:
            raise HostUnavailable(f"no terminal host listens at {self.socket_path}")
        await start_host(self.socket_path, self.state_dir, self._environment)
        deadline = asyncio.get_running_loop().time() + START_TIMEOUT_S
        while asyncio.get_running_loop().time() < deadline:
            with contextlib.suppress(OSError, HostLost):
                return await Connection.open(str(self.socket_path))
            await asyncio.sleep(START_POLL_S)
        log = self.state_dir / "host.log"
        raise HostUnavailable(f"the terminal host did not start; its log is {log}")


async def start_host(
    socket_path: Path, state_dir: Path, environment: Mapping[str, str] | None = None
) -> None:
    """Start a host that outlives us; if another one has the lock, the new one goes away."""
    starter = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "holdfast.terminal.main",
        str(socket_path.absolute()),
        str(state_dir.absolute()),
        "--detach",
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.DEVNULL,
        env=environment,
        start_new_session=True,
    )
    if await starter.wait() != 0:
        raise HostUnavailable("the terminal host could not be started")


async def _detach(connection: Connection, channel: int) -> None:
    connection.close_channel(channel)
    with contextlib.suppress(TerminalError):
        await connection.call("detach", channel=channel)


def _suspension(raw: dict[str, Any]) -> Suspension:
    return Suspension(tuple(raw["keys"]), tuple(raw["pids"]), bool(raw["verified"]))
