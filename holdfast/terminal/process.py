"""One process of the host: its output, input, size, state and end."""

import asyncio
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

from holdfast.terminal import tree
from holdfast.terminal.cages.accounting import kernel_kills
from holdfast.terminal.cages.enforcement import Enforcement
from holdfast.terminal.cages.policy import CagePolicy
from holdfast.terminal.clock import RunClock
from holdfast.terminal.ending import Ending
from holdfast.terminal.errors import (
    InputFull,
    NotATerminal,
    ProcessOver,
    SuspendFailed,
    TerminalError,
    TranscriptMissing,
)
from holdfast.terminal.exits import Folder, Recorded
from holdfast.terminal.launch import Launched
from holdfast.terminal.records import (
    Exit,
    ProcessInfo,
    ProcessState,
    Reason,
    SpawnRequest,
    check_size,
)
from holdfast.terminal.screens.ring import Ring
from holdfast.terminal.screens.screen import LAG_BYTES_MAX, Screen, Screens
from holdfast.terminal.transcript import TranscriptWriter

READ_BYTES = 64 * 1024
INPUT_QUEUE_BYTES_MAX = 256 * 1024
# Hundreds of processes are listed in one frame.
LABEL_LENGTH = 200
COMMAND_LENGTH = 500


class Watching(Protocol):
    """Somebody who is told when there is more to show."""

    writes: bool

    def wake(self) -> None:
        """There is new output, or the end."""

    def resized(self, cols: int, rows: int) -> None:
        """The terminal has a new size."""


class HostedProcess:
    """A program under its key, from before its first byte until long after its end."""

    def __init__(
        self,
        request: SpawnRequest,
        folder: Folder,
        screens: Screens,
        *,
        policy: CagePolicy | None = None,
        enforcement: Enforcement | None = None,
        started_at_ms: int,
    ) -> None:
        self.request = request
        self.folder = folder
        self.policy = policy
        self.enforcement = enforcement
        self.started_at_ms = started_at_ms
        self.cols, self.rows = request.cols, request.rows
        self.ring = Ring(lines_max=request.scrollback_lines)
        self.transcript: TranscriptWriter | None = None
        self.screen: Screen | None = None
        self.launched: Launched | None = None
        self.ending: Ending | None = None
        self.exit: Exit | None = None
        self.suspended = False
        self.clock = RunClock()
        self.kernel_kills = 0
        self.viewers: set[Watching] = set()
        self.last_activity = time.monotonic()
        self.idle_told = False
        self.over: asyncio.Future[Exit] = asyncio.get_running_loop().create_future()
        self.drained = asyncio.Event()
        self._screens = screens
        self._input = bytearray()
        self._reading = False
        self._again: Callable[[], Launched] | None = None

    @classmethod
    def from_disk(cls, recorded: Recorded, screens: Screens, over: Exit) -> "HostedProcess":
        """A process of an earlier host; only its transcript can be read."""
        started = recorded.started_at_ms
        folder = Folder(recorded.folder)
        process = cls(recorded.request, folder, screens, started_at_ms=started)
        process.ring = Ring(start=over.output_bytes)
        process.ring.lines_total = over.output_lines
        process.exit = over
        process.over.set_result(over)
        return process

    @property
    def key(self) -> str:
        """The caller's name for it."""
        return self.request.key

    @property
    def state(self) -> ProcessState:
        """Where it is in its life."""
        if self.exit is not None:
            return ProcessState.EXITED
        return ProcessState.SUSPENDED if self.suspended else ProcessState.RUNNING

    @property
    def root(self) -> int | None:
        """The pid of the leader while there is one."""
        return None if self.launched is None or self.exit is not None else self.launched.pid

    def info(self, *, created: bool = False) -> ProcessInfo:
        """What the host tells about it."""
        request = self.request
        screen = "degraded" if self.screen is None or self.screen.disabled else "exact"
        return ProcessInfo(
            key=request.key,
            session_id=request.session_id,
            run_id=request.run_id,
            label=request.label[:LABEL_LENGTH],
            command=(request.command or " ".join(request.argv or ()))[:COMMAND_LENGTH],
            cwd=str(Path(request.cwd) / request.below),
            terminal=request.terminal,
            cols=self.cols,
            rows=self.rows,
            state=self.state,
            pid=self.root,
            started_at_ms=self.started_at_ms,
            seq=self.ring.end,
            ring_start=self.ring.start,
            lines=self.ring.lines_total,
            viewers=len(self.viewers),
            idle=self.idle_told,
            cage=self._cage(),
            screen=screen if request.terminal else "none",
            transcript=str(self.folder.transcript),
            exit=self.exit,
            created=created,
        )

    def _cage(self) -> str:
        if self.request.cage is None:
            return "disabled"
        kind = "bubblewrap" if self.launched is None else self.launched.cage
        # The word that clients have known since the first release.
        return "bwrap" if kind == "bubblewrap" else kind

    def run(
        self,
        launched: Launched,
        *,
        on_over: Callable[["HostedProcess"], Any],
        orphans: Callable[[], list[int]],
        again: Callable[[], Launched] | None = None,
    ) -> None:
        """Take charge of a program that was just started; `again` starts it once more."""
        self.launched = launched
        self._again, self._on_over, self._orphans = again, on_over, orphans
        self.kernel_kills = kernel_kills()
        self.clock = RunClock()
        self.transcript = TranscriptWriter(self.folder.transcript)
        if self.request.terminal:
            self.transcript.resize(self.cols, self.rows, time.time())
            self.screen = self._screens.open(
                self.ring,
                (self.cols, self.rows),
                on_answer=self._answer,
                on_drawn=self._read_on,
            )
        self.ending = Ending(self, launched, on_over=on_over, orphans=orphans)
        self._read_on()

    def start_again(self) -> bool:
        """Once, when its cage could not be set up and nothing ran; False when it must end."""
        again, before = self._again, self.launched
        if again is None or before is None:
            return False
        self._again = None
        try:
            launched = again()
        except TerminalError:
            return False
        before.close()
        self.launched, self.drained, self._reading = launched, asyncio.Event(), False
        if self.request.terminal:
            launched.set_size(self.cols, self.rows)
        self.ending = Ending(self, launched, on_over=self._on_over, orphans=self._orphans)
        self._read_on()
        return True

    def write(self, data: bytes) -> None:
        """Type into the terminal; InputFull if the program has not read what was typed before."""
        if not self.request.terminal:
            raise NotATerminal(f"{self.key} has no terminal")
        if self.launched is None or self.exit is not None:
            raise ProcessOver(f"{self.key} is over")
        if len(self._input) + len(data) > INPUT_QUEUE_BYTES_MAX:
            raise InputFull(f"{self.key} does not read its input")
        self._input += data
        self.last_activity = time.monotonic()
        self._flush_input()

    def resize(self, cols: int, rows: int) -> None:
        """A new size; the kernel tells the programs in the foreground by SIGWINCH."""
        check_size(cols, rows)
        if not self.request.terminal:
            raise NotATerminal(f"{self.key} has no terminal")
        if self.launched is None or self.transcript is None or self.exit is not None:
            raise ProcessOver(f"{self.key} is over")
        if (cols, rows) == (self.cols, self.rows):
            return
        self.cols, self.rows = cols, rows
        self.launched.set_size(cols, rows)
        self.transcript.resize(cols, rows, time.time())
        if self.screen is not None:
            self._screens.resize(self.screen, cols, rows)
        for viewer in tuple(self.viewers):
            viewer.resized(cols, rows)

    def nudge(self) -> None:
        """Make a full-screen program paint anew: the size goes one row down and back."""
        if self.launched is not None and self.exit is None and self.rows > 1:
            self.launched.set_size(self.cols, self.rows - 1)
            self.launched.set_size(self.cols, self.rows)

    async def suspend(self) -> list[int]:
        """Stop the whole tree where it is; the pids, each seen to stand still."""
        root = self.root
        if root is None:
            return []
        pids = await tree.stop(root)
        if pids is None:
            tree.proceed(root)
            raise SuspendFailed(f"some processes of {self.key} did not stop", key=self.key)
        if self.exit is None:
            self.suspended = True
            self.clock.pause()
        return pids

    async def resume(self) -> list[int]:
        """Let the whole tree go on."""
        root = self.root
        if root is None or not self.suspended:
            return []
        woken = tree.proceed(root)
        self.suspended = False
        self.clock.proceed()
        self.last_activity = time.monotonic()
        return woken

    async def kill(self, reason: Reason, grace_s: float, message: str = "") -> Exit:
        """End the whole tree, gently first; how it ended."""
        if self.exit is None and self.ending is not None:
            await self.ending.kill(reason, grace_s, message)
        return await asyncio.shield(self.over)

    def finish(self, over: Exit) -> None:
        """The end: everything is on disk from here on, and all who wait are told."""
        assert self.launched is not None
        assert self.transcript is not None
        self.stop_reading()
        self.transcript.close(self.ring.read(self.ring.start, 2**62), time.time())
        self.folder.write_exit(over)
        self.launched.close()
        if self.enforcement is not None:
            self.enforcement.close()
        self._input.clear()
        self.suspended = False
        self.exit = over
        self.over.set_result(over)
        for viewer in tuple(self.viewers):
            viewer.wake()

    def forget(self) -> None:
        """Let go of ring and screen; the transcript remains."""
        if self.screen is not None:
            self._screens.close(self.screen)
            self.screen = None
        lines = self.ring.lines_total
        self.ring = Ring(start=self.ring.end)
        self.ring.lines_total = lines

    @property
    def has_memory(self) -> bool:
        """Whether it keeps a ring or a screen."""
        return self.screen is not None or self.ring.end > self.ring.start

    def transcript_place(self, seq: int) -> tuple[Path, int, int]:
        """The transcript, and position and offset of a record in it at or before `seq`."""
        if self.transcript is None:
            return self.folder.transcript, 0, 0
        return self.folder.transcript, *self.transcript.offset_of(seq)

    def transcript_piece(self, offset: int, bytes_max: int) -> bytes:
        """Bytes of the transcript's file; TranscriptMissing if it is gone though there was output.

        A host that died right after it took a key has left none: then nothing was shown.
        """
        try:
            with self.folder.transcript.open("rb") as file:
                file.seek(offset)
                return file.read(bytes_max)
        except FileNotFoundError:
            if self.ring.end == 0:
                return b""
            raise TranscriptMissing(f"the transcript of {self.key} is gone") from None

    def stop_reading(self) -> None:
        """No more output is wanted or expected."""
        if self._reading and self.launched is not None:
            asyncio.get_running_loop().remove_reader(self.launched.output)
            self._reading = False

    def _read_on(self) -> None:
        """Read while the emulator keeps up; otherwise the kernel makes the program wait."""
        behind = self.screen is not None and self.screen.lag > LAG_BYTES_MAX
        finishing = self.ending is not None and self.ending.leader_gone
        wanted = not self.drained.is_set() and (not behind or finishing)
        if self.launched is None or self.exit is not None or wanted == self._reading:
            return
        if wanted:
            asyncio.get_running_loop().add_reader(self.launched.output, self._on_readable)
            self._reading = True
        else:
            self.stop_reading()

    def drain(self) -> None:
        """Read to the end even if the emulator is behind: the program is over."""
        self._read_on()

    def _on_readable(self) -> None:
        assert self.launched is not None
        try:
            data = os.read(self.launched.output, READ_BYTES)
        except BlockingIOError:
            return
        except OSError:
            # EIO: nobody has the other side of the terminal open any more.
            data = b""
        if not data:
            self.drained.set()
            self.stop_reading()
            return
        self._take(data)

    def _take(self, data: bytes) -> None:
        assert self.transcript is not None
        self.ring.append(data)
        self.transcript.append(data, time.time())
        self.last_activity = time.monotonic()
        if self.screen is not None:
            self._screens.feed(self.screen, data)
            self._read_on()
        for viewer in tuple(self.viewers):
            viewer.wake()

    def _answer(self, data: bytes) -> None:
        """The emulator answers the program's questions, unless a real terminal is there to."""
        if not any(viewer.writes for viewer in self.viewers) and self.exit is None:
            self._input += data[:INPUT_QUEUE_BYTES_MAX]
            self._flush_input()

    def _flush_input(self) -> None:
        assert self.launched is not None
        loop = asyncio.get_running_loop()
        try:
            sent = os.write(self.launched.output, self._input)
            del self._input[:sent]
        except BlockingIOError:
            pass
        except OSError:
            # The other side is closed; the exit will tell.
            self._input.clear()
        if self._input:
            loop.add_writer(self.launched.output, self._flush_input)
        else:
            loop.remove_writer(self.launched.output)
