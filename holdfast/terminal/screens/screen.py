"""The host's side of the screens: what was fed to the emulator child, and pictures of it.

The child is started when the first terminal is, and again when it dies. A terminal whose output
kills it twice within a minute, or a machine without the emulator, falls back to the ring.
"""

import asyncio
import contextlib
import itertools
import logging
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable

from holdfast.terminal import protocol
from holdfast.terminal.protocol import Frame, FrameType
from holdfast.terminal.records import Snapshot
from holdfast.terminal.screens.ring import Ring

logger = logging.getLogger(__name__)

LAG_BYTES_MAX = 1024 * 1024
SHOW_TIMEOUT_S = 10.0
DEATHS_MAX = 2
DEATHS_SECONDS = 60.0
FEED_BYTES = 64 * 1024


class Screen:
    """One terminal's picture: how far the emulator was fed and how far it has drawn."""

    def __init__(
        self,
        number: int,
        ring: Ring,
        size: tuple[int, int],
        on_answer: Callable[[bytes], None],
        on_drawn: Callable[[], None],
    ) -> None:
        self.number = number
        self.ring = ring
        self.cols, self.rows = size
        self.fed = ring.end
        self.drawn = ring.end
        self.exact = True
        self.disabled = False
        self.on_answer = on_answer
        self.on_drawn = on_drawn
        self.deaths: list[float] = []

    @property
    def lag(self) -> int:
        """Bytes that the emulator has been given and not yet drawn."""
        return 0 if self.disabled else self.fed - self.drawn


class Screens:
    """All screens and the one child that draws them."""

    def __init__(self) -> None:
        self._screens: dict[int, Screen] = {}
        self._numbers = itertools.count(1)
        self._requests = itertools.count(1)
        self._shows: dict[int, tuple[asyncio.Future[Snapshot | None], bytearray]] = {}
        self._child: subprocess.Popen[bytes] | None = None
        self._writer: asyncio.StreamWriter | None = None
        self._task: asyncio.Task[None] | None = None
        self._starting = asyncio.Lock()
        self._useless_starts = 0
        self._restart: asyncio.Task[None] | None = None

    @property
    def pid(self) -> int | None:
        """The child's pid, so that the host does not take it for an orphan."""
        return None if self._child is None else self._child.pid

    async def ensure(self) -> None:
        """Have a child running, unless it has proved not to work here."""
        async with self._starting:
            if self._writer is None and self._useless_starts < DEATHS_MAX:
                await self._start()

    def open(
        self,
        ring: Ring,
        size: tuple[int, int],
        *,
        on_answer: Callable[[bytes], None],
        on_drawn: Callable[[], None],
    ) -> Screen:
        """A picture for a new terminal."""
        screen = Screen(next(self._numbers), ring, size, on_answer, on_drawn)
        screen.disabled = self._useless_starts >= DEATHS_MAX
        self._screens[screen.number] = screen
        self._open(screen)
        return screen

    def feed(self, screen: Screen, data: bytes) -> None:
        """Give the emulator what the ring just got."""
        if self._writer is not None and not screen.disabled:
            self._send(FrameType.FEED, screen, data)
            screen.fed += len(data)

    def resize(self, screen: Screen, cols: int, rows: int) -> None:
        """The terminal has another size from here on."""
        screen.cols, screen.rows = cols, rows
        if not screen.disabled:
            self._send(FrameType.RESIZE, screen, protocol.SCREEN_SIZE.pack(cols, rows))

    def close(self, screen: Screen) -> None:
        """Nobody will ask for this picture again."""
        if self._screens.pop(screen.number, None) is not None:
            self._send(FrameType.DROP, screen, b"")

    async def show(self, screen: Screen, *, history: bool) -> Snapshot | None:
        """The screen as of now, or None if there is no emulator that could tell."""
        return await self._ask(screen, protocol.SHOW_HISTORY if history else 0)

    async def text(self, screen: Screen) -> str | None:
        """The visible rows as plain text."""
        shot = await self._ask(screen, protocol.SHOW_TEXT)
        return None if shot is None else shot.data.decode(errors="replace")

    async def stop(self) -> None:
        """End the child."""
        self._useless_starts = DEATHS_MAX
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
        self._bury()

    async def _ask(self, screen: Screen, flags: int) -> Snapshot | None:
        if self._writer is None or screen.disabled:
            return None
        number = next(self._requests) % 2**32
        answer: asyncio.Future[Snapshot | None] = asyncio.get_running_loop().create_future()
        self._shows[number] = (answer, bytearray())
        self._send(FrameType.SHOW, screen, protocol.SCREEN_SHOW.pack(number, flags))
        try:
            async with asyncio.timeout(SHOW_TIMEOUT_S):
                return await answer
        except TimeoutError:
            return None
        finally:
            self._shows.pop(number, None)

    async def _start(self) -> None:
        ours, theirs = socket.socketpair()
        command = [sys.executable, "-m", "holdfast.terminal.screens.screend", str(theirs.fileno())]
        # `-m` would put the working directory first on the path; the host's is `/`.
        self._child = subprocess.Popen(  # noqa: ASYNC220 (the loop only pays for the fork)
            command,
            pass_fds=(theirs.fileno(),),
            stdin=subprocess.DEVNULL,
            cwd="/",
            env={**os.environ, "PYTHONSAFEPATH": "1"},
            start_new_session=True,
        )
        theirs.close()
        reader, self._writer = await asyncio.open_connection(sock=ours)
        self._task = asyncio.create_task(self._read(reader), name="screens")
        for screen in self._screens.values():
            self._open(screen)

    async def _read(self, reader: asyncio.StreamReader) -> None:
        while frame := await protocol.read_frame(reader):
            self._take(frame)
        logger.warning("the screen emulator died")
        self._blame()
        self._bury()
        # Not awaited from here: this task is the one that a restart replaces.
        self._restart = asyncio.create_task(self.ensure())

    def _take(self, frame: Frame) -> None:
        self._useless_starts = 0
        screen = self._screens.get(frame.channel)
        if frame.type is FrameType.SNAPSHOT:
            self._take_show(frame.payload)
        elif screen is None:
            return
        elif frame.type is FrameType.FED:
            screen.drawn = int(protocol.unpack(protocol.SEQUENCE, frame.payload)[0])
            screen.on_drawn()
        elif frame.type is FrameType.ANSWER:
            screen.on_answer(frame.payload)

    def _take_show(self, payload: bytes) -> None:
        head = protocol.SCREEN_SHOWN.size + protocol.SNAPSHOT.size
        number = int(protocol.unpack(protocol.SCREEN_SHOWN, payload)[0])
        seq, total, cols, rows, lines, exact = protocol.SNAPSHOT.unpack_from(
            payload, protocol.SCREEN_SHOWN.size
        )
        answer, parts = self._shows.get(number, (None, bytearray()))
        parts += payload[head:]
        if answer is not None and len(parts) >= total and not answer.done():
            answer.set_result(Snapshot(seq, bytes(parts), cols, rows, lines, bool(exact)))

    def _open(self, screen: Screen) -> None:
        """Start a picture, drawing again all that the ring still has."""
        if self._writer is None or screen.disabled:
            return
        ring = screen.ring
        modes = b"" if ring.whole else ring.modes()
        # The modes of what was evicted are drawn first but are no part of the output. Modes there
        # are only after 256 KiB were evicted, so the base is never negative.
        base = ring.start - len(modes)
        screen.exact = ring.whole
        screen.drawn = ring.start
        opened = protocol.SCREEN_OPEN.pack(base, screen.cols, screen.rows, ring.lines_max)
        self._send(FrameType.OPEN, screen, opened)
        if modes:
            self._send(FrameType.FEED, screen, modes)
        position = ring.start
        while position < ring.end:
            data = ring.read(position, FEED_BYTES)
            self._send(FrameType.FEED, screen, data)
            position += len(data)
        screen.fed = ring.end

    def _send(self, kind: FrameType, screen: Screen, payload: bytes) -> None:
        if self._writer is not None and not self._writer.is_closing():
            self._writer.write(protocol.encode(kind, screen.number, payload))

    def _blame(self) -> None:
        """Count the death against the terminals whose output was being drawn."""
        self._useless_starts += 1
        now = time.monotonic()
        for screen in self._screens.values():
            if screen.lag:
                recent = [death for death in screen.deaths if now - death < DEATHS_SECONDS]
                screen.deaths = [*recent, now]
                screen.disabled = len(screen.deaths) >= DEATHS_MAX
            # An emulator that never says a word does not work on this machine.
            screen.disabled |= self._useless_starts >= DEATHS_MAX

    def _bury(self) -> None:
        if self._writer is not None:
            self._writer.close()
            self._writer = None
        if self._child is not None:
            self._child.kill()
            self._child.wait()
            self._child = None
        for answer, _ in self._shows.values():
            if not answer.done():
                answer.set_result(None)
        for screen in self._screens.values():
            screen.drawn = screen.fed
            screen.on_drawn()
