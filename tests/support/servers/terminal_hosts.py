"""A terminal host of a test's own: a real process with its own socket and state."""

import asyncio
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Self

from holdfast.terminal import tree
from holdfast.terminal.client import SpawnRequest, TerminalClient

DEADLINE_S = 120.0


class TestHost:
    """Starts with the context and is gone, with all it ran, when the context ends."""

    __test__ = False

    def __init__(self, *prefix: str, **environment: str) -> None:
        # The kernel allows only some 100 bytes for a socket's path, hence no tmp_path.
        self.folder = Path(tempfile.mkdtemp(prefix="hft-"))
        self.socket = self.folder / "run" / "host.sock"
        self.state = self.folder / "state"
        self.work = self.folder / "work"
        self.work.mkdir()
        self.environment = environment
        # Before the command of the host: what puts it into other surroundings.
        self.prefix = [*prefix]
        self.python = sys.executable
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
        self.remove()

    def remove(self) -> None:
        """Delete socket, state and work folder."""
        shutil.rmtree(self.folder, ignore_errors=True)

    @property
    def pid(self) -> int:
        """The host's pid."""
        assert self._process is not None
        return self._process.pid

    def start(self) -> None:
        """Start a host on this state; it is ready when its socket is there."""
        command = [
            *self.prefix,
            self.python,
            "-m",
            "holdfast.terminal.main",
            str(self.socket),
            str(self.state),
        ]
        self.socket.unlink(missing_ok=True)
        self._process = subprocess.Popen(command, env={**os.environ, **self.environment})
        deadline = time.monotonic() + DEADLINE_S
        while not self.socket.exists():
            assert self._process.poll() is None, "the host ended at once"
            assert time.monotonic() < deadline, "the host did not start"
            time.sleep(0.01)

    def is_over(self) -> bool:
        """Whether the host has ended by itself."""
        return self._process is None or self._process.poll() is not None

    def kill(self) -> None:
        """The host dies without a word."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        """The host is asked to end everything and go."""
        self._end(signal.SIGTERM)

    def _end(self, number: signal.Signals) -> None:
        if self._process is not None:
            self._process.send_signal(number)
            self._process.wait(timeout=DEADLINE_S)
            self._process = None

    async def client(self) -> TerminalClient:
        """A new client; it never starts a host by itself."""
        return await TerminalClient.connect(self.socket, state_dir=self.state, start=False)

    def request(self, key: str, command: str, **fields: object) -> SpawnRequest:
        """A request for a command in the host's work folder."""
        given = {"session_id": "session", "cwd": str(self.work), **fields}
        return SpawnRequest(key=key, command=command, **given)  # type: ignore[arg-type]


async def eventually(holds: Callable[[], bool | Awaitable[bool]], what: str = "") -> None:
    """Wait until a condition holds; fails after a generous deadline."""
    deadline = time.monotonic() + DEADLINE_S
    while time.monotonic() < deadline:
        result = holds()
        if result if isinstance(result, bool) else await result:
            return
        await asyncio.sleep(0.01)
    raise AssertionError(f"never came to pass: {what}")


async def collect(client: TerminalClient, key: str, from_seq: int = 0) -> bytes:
    """All output of a process from a position to its end."""
    parts = bytearray()
    async for seq, data in client.output(key, from_seq):
        assert seq == from_seq + len(parts)
        parts += data
    return bytes(parts)


def state_of(pid: int) -> str:
    """The kernel's letter for what a process does, or an empty text if it is gone."""
    status = tree.read_status(pid)
    return "" if status is None else status.state
