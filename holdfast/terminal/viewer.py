"""Those who look at a process: a position in its output and a credit, and never a queue.

A reader gets every byte, from the transcript where the ring has moved on. A watcher gets what a
person can follow: at most 1 MiB/s, and when it falls behind, a notice and a picture of the screen.
"""

import asyncio
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict
from typing import Any

from holdfast.terminal import protocol
from holdfast.terminal.process import HostedProcess
from holdfast.terminal.protocol import FrameType
from holdfast.terminal.records import Snapshot
from holdfast.terminal.screens.screen import Screens
from holdfast.terminal.transcript import OUTPUT, Record, read_records

RATE_BYTES_PER_S = 1024 * 1024
BURST_BYTES = 1024 * 1024
BACKLOG_BYTES_MAX = 1024 * 1024
RING_SHOT_BYTES = 1024 * 1024
SHOTS_INTERVAL_S = 0.5
CONGESTED_RETRY_S = 0.02
CREDIT_MAX = 64 * 1024 * 1024
SNAPSHOT_PART_BYTES = 512 * 1024


class Viewer:
    """What readers and watchers have in common: a channel, a position, a credit."""

    writes = False

    def __init__(
        self,
        process: HostedProcess,
        channel: int,
        *,
        send: Callable[[bytes], None],
        congested: Callable[[], bool],
    ) -> None:
        self.process = process
        self.channel = channel
        self.position = 0
        self.credit = 0
        self._send = send
        self._congested = congested
        self._timer: asyncio.Handle | None = None
        self._done = False
        process.viewers.add(self)

    def close(self) -> None:
        """Look no more."""
        self._done = True
        self.process.viewers.discard(self)
        if self._timer is not None:
            self._timer.cancel()

    def grant(self, amount: int) -> None:
        """The client can take `amount` bytes more."""
        self.credit = min(self.credit + amount, CREDIT_MAX)
        self.wake()

    def wake(self) -> None:
        """Send what can be sent, once the loop has served the others."""
        if self._timer is None and not self._done:
            self._timer = asyncio.get_running_loop().call_soon(self._turn)

    def resized(self, cols: int, rows: int) -> None:
        """Readers do not care."""

    def _wake_in(self, seconds: float) -> None:
        if self._timer is None and not self._done:
            self._timer = asyncio.get_running_loop().call_later(seconds, self._turn)

    def _turn(self) -> None:
        self._timer = None
        if self._done:
            return
        if self._congested():
            # The client does not read its socket; its credit is worth nothing until it does.
            self._wake_in(CONGESTED_RETRY_S)
            return
        self._pump()

    def _pump(self) -> None:
        raise NotImplementedError

    def _tell(self, event: str, **details: Any) -> None:
        message = {"event": event, **details}
        self._send(protocol.encode_json(FrameType.EVENT, self.channel, message))

    def _output(self, data: bytes) -> None:
        self._send(protocol.encode_output(self.channel, self.position, data))
        self.position += len(data)
        self.credit -= len(data)

    def _end(self) -> None:
        over = self.process.exit
        if over is not None and self.position >= self.process.ring.end:
            self._tell("closed", exit=asdict(over))
            self.close()


class Reader(Viewer):
    """Gets every byte from its position to the end, at its own pace."""

    def __init__(self, process: HostedProcess, channel: int, *, seq: int, **link: Any) -> None:
        super().__init__(process, channel, **link)
        self.position = min(seq, process.ring.end)
        self._records: Iterator[Record] | None = None

    def _pump(self) -> None:
        ring = self.process.ring
        if self.position < ring.end:
            if self.credit <= 0:
                return
            if self.position >= ring.start:
                self._records = None
                limit = min(self.credit, protocol.CHUNK_BYTES_MAX)
                self._output(ring.read(self.position, limit))
            else:
                self._from_transcript()
            self.wake()
            return
        self._end()

    def _from_transcript(self) -> None:
        if self._records is None:
            path, seq, offset = self.process.transcript_place(self.position)
            self._records = read_records(path, seq=seq, offset=offset)
        for record in self._records:
            if record.kind == OUTPUT and record.seq + len(record.data) > self.position:
                data = record.data[max(0, self.position - record.seq) :]
                self.position = max(self.position, record.seq)
                self._output(data)
                return
        # What the transcript's limit left out is gone; the position jumps over it.
        self.position = self.process.ring.start


class Watcher(Viewer):
    """Gets a live screen: resumed bytes or a picture first, then what follows, within the rate."""

    def __init__(
        self,
        process: HostedProcess,
        channel: int,
        screens: Screens,
        *,
        writes: bool,
        on_throttled: Callable[[HostedProcess, int, int], None],
        **link: Any,
    ) -> None:
        super().__init__(process, channel, **link)
        self.writes = writes
        self._screens = screens
        self._on_throttled = on_throttled
        self._tokens = float(BURST_BYTES)
        self._refilled_at = time.monotonic()
        self._shot_at = 0.0
        self._history_owed = False
        self._begun = False
        self._shooting: asyncio.Task[None] | None = None

    def begin(self, seq: int | None, *, history: bool) -> str:
        """Where the view starts: `resume`, `snapshot` or `ring`."""
        ring = self.process.ring
        if seq is not None and ring.start <= seq <= ring.end:
            self.position = seq
            self._begun = True
            self.wake()
            return "resume"
        self._shoot(history=history)
        screen = self.process.screen
        return "snapshot" if screen is not None and not screen.disabled else "ring"

    def resized(self, cols: int, rows: int) -> None:
        """Tell the other viewers of the terminal."""
        self._tell("resized", cols=cols, rows=rows)

    def close(self) -> None:
        """Look no more, not even at a picture that is being made."""
        super().close()
        if self._shooting is not None:
            self._shooting.cancel()

    def _pump(self) -> None:
        if self._shooting is not None:
            return
        ring = self.process.ring
        backlog = ring.end - self.position
        if backlog > BACKLOG_BYTES_MAX or self.position < ring.start:
            self._skip()
        elif backlog:
            self._send_some(backlog)
        elif self._history_owed:
            self._catch_up()
        else:
            self._end()

    def _send_some(self, backlog: int) -> None:
        self._refill()
        amount = min(backlog, self.credit, int(self._tokens), protocol.CHUNK_BYTES_MAX)
        if amount > 0:
            self._tokens -= amount
            self._output(self.process.ring.read(self.position, amount))
            self.wake()
        elif self.credit > 0:
            self._wake_in(min(backlog, protocol.CHUNK_BYTES_MAX) / RATE_BYTES_PER_S)

    def _skip(self) -> None:
        """Too far behind: leave out what is between and show the screen as it is now."""
        wait = self._shot_at + SHOTS_INTERVAL_S - time.monotonic()
        if wait > 0:
            self._wake_in(wait)
            return
        self._history_owed = True
        self._shoot(history=False)

    def _catch_up(self) -> None:
        """The flood is over: a picture with the history that was skipped."""
        wait = self._shot_at + SHOTS_INTERVAL_S - time.monotonic()
        if wait > 0:
            self._wake_in(wait)
            return
        self._history_owed = False
        self._shoot(history=True)

    def _shoot(self, *, history: bool) -> None:
        self._shot_at = time.monotonic()
        self._shooting = asyncio.create_task(self._show(history=history))

    async def _show(self, *, history: bool) -> None:
        shot = None
        screen = self.process.screen
        if screen is not None:
            shot = await self._screens.show(screen, history=history)
            if shot is not None and not screen.exact:
                shot = Snapshot(shot.seq, shot.data, shot.cols, shot.rows, shot.lines, exact=False)
                self.process.nudge()
        if shot is None:
            shot = self._from_ring()
            self.process.nudge()
        if self._begun and self.position < shot.seq:
            self._tell("throttled", from_seq=self.position, to_seq=shot.seq)
            self._on_throttled(self.process, self.position, shot.seq)
        self.position = shot.seq
        self._begun = True
        self._send_snapshot(shot)
        self._shooting = None
        self.wake()

    def _from_ring(self) -> Snapshot:
        process, ring = self.process, self.process.ring
        start = max(ring.start, ring.end - RING_SHOT_BYTES)
        data = ring.read(start, RING_SHOT_BYTES) if ring.end > ring.start else self._from_disk()
        modes = ring.modes() if process.request.terminal else b""
        lines = data.count(b"\n")
        return Snapshot(ring.end, modes + data, process.cols, process.rows, lines, exact=False)

    def _from_disk(self) -> bytes:
        """The end of a transcript whose ring is gone."""
        end = self.process.ring.end
        path, seq, offset = self.process.transcript_place(max(0, end - RING_SHOT_BYTES))
        tail = b""
        if path.exists():
            for record in read_records(path, seq=seq, offset=offset):
                if record.kind == OUTPUT:
                    tail = (tail + record.data)[-RING_SHOT_BYTES:]
        return tail

    def _send_snapshot(self, shot: Snapshot) -> None:
        head = protocol.SNAPSHOT.pack(
            shot.seq, len(shot.data), shot.cols, shot.rows, shot.lines, shot.exact
        )
        for start in range(0, max(len(shot.data), 1), SNAPSHOT_PART_BYTES):
            part = head + shot.data[start : start + SNAPSHOT_PART_BYTES]
            self._send(protocol.encode(FrameType.SNAPSHOT, self.channel, part))

    def _refill(self) -> None:
        now = time.monotonic()
        gained = (now - self._refilled_at) * RATE_BYTES_PER_S
        self._tokens = min(BURST_BYTES, self._tokens + gained)
        self._refilled_at = now
