"""The newest frames of one session, read once for all who watch it and encoded once."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from pydantic_core import to_json

from domain.events import PtyAllocated
from domain.lifecycle import OVER
from storage import events, frames
from storage.engine import Db
from storage.feed import Feed
from storage.opening import OpenStore
from storage.tables_history import EventRow

Channel = Literal["output", "events"]
BATCH = 500
KEPT_FRAMES_MAX = 2000
KEPT_BYTES_MAX = 4 * 1024 * 1024
# The bell is never trusted for longer than this.
LOOK_AGAIN_S = 5.0


@dataclass(frozen=True)
class Sent:
    """One frame, ready to be sent.

    `over` marks one that may be the session's last; `pty_id` one that tells of a new terminal.
    """

    seq: int
    text: str
    over: bool = False
    pty_id: str | None = None


class Gap(Exception):
    """Frames that a client still needed are gone."""


class Tail:
    """Both channels of a session. Reading is by seq, so nobody's pace is anybody else's."""

    def __init__(self, store: OpenStore, feed: Feed, session_id: str) -> None:
        self.watchers = 0
        self._bell = asyncio.Condition()
        self._rung = 0
        self._channels = {
            "output": _Kept(store, session_id, _output_after),
            "events": _Kept(store, session_id, _events_after),
        }
        self._task = asyncio.create_task(self._listen(feed, session_id))

    def close(self) -> None:
        """Stop listening."""
        self._task.cancel()

    @property
    def rung(self) -> int:
        """How often there was news; take it before reading, then wait for more."""
        return self._rung

    async def read(self, channel: Channel, after: int) -> list[Sent]:
        """The next frames after `after`, oldest first; Gap when they were pruned."""
        return await self._channels[channel].after(after)

    async def wait(self, rung: int) -> None:
        """Until there was news since `rung`."""
        async with self._bell:
            await self._bell.wait_for(lambda: self._rung > rung)

    async def _listen(self, feed: Feed, session_id: str) -> None:
        with feed.listen(session_id) as listener:
            while True:
                rang = await listener.wait(LOOK_AGAIN_S)
                seqs = listener.seqs if rang else None
                self._channels["events"].hear(None if seqs is None else seqs[0])
                self._channels["output"].hear(None if seqs is None else seqs[1])
                async with self._bell:
                    self._rung += 1
                    self._bell.notify_all()


class _Kept:
    """A run of consecutive frames at the end of one channel."""

    def __init__(
        self, store: OpenStore, session_id: str, load: Callable[[Db, str, int], list[Sent]]
    ) -> None:
        self._store = store
        self._session_id = session_id
        self._load = load
        self._frames: deque[Sent] = deque()
        self._bytes = 0
        self._end = 0  # everything up to here was read, and there was no more
        self._stale = True
        self._reading = asyncio.Lock()

    def hear(self, seq: int | None) -> None:
        """There may be frames up to `seq`; None when nobody knows."""
        self._stale = self._stale or seq is None or seq > self._end

    async def after(self, seq: int) -> list[Sent]:
        async with self._reading:
            if self._frames and self._frames[0].seq - 1 <= seq < self._frames[-1].seq:
                return self._slice(seq)
            if seq >= self._end and not self._stale:
                return []
            follows = not self._frames or seq == self._frames[-1].seq
            found = await self._read(seq, follows=follows)
            if found and found[0].seq != seq + 1:
                self._stale = True
                raise Gap
            if follows:
                self._keep(found, seq)
            return found

    async def _read(self, seq: int, *, follows: bool) -> list[Sent]:
        # News that comes while we read must be read again, so the mark goes away before.
        if follows:
            self._stale = False
        try:
            return await self._store.aread(lambda db: self._load(db, self._session_id, seq))
        except BaseException:
            self._stale = True
            raise

    def _slice(self, seq: int) -> list[Sent]:
        skip = seq - self._frames[0].seq + 1
        return [self._frames[at] for at in range(skip, min(skip + BATCH, len(self._frames)))]

    def _keep(self, found: list[Sent], seq: int) -> None:
        self._end = max(self._end, found[-1].seq if found else seq)
        self._stale = self._stale or len(found) == BATCH
        self._frames.extend(found)
        self._bytes += sum(len(frame.text) for frame in found)
        while self._frames and (
            len(self._frames) > KEPT_FRAMES_MAX or self._bytes > KEPT_BYTES_MAX
        ):
            self._bytes -= len(self._frames.popleft().text)


def frame_text(channel: str, kind: str, payload: Any, seq: int | None = None) -> str:
    """One frame of the wire."""
    frame: dict[str, Any] = {"channel": channel, "type": kind}
    if seq is not None:
        frame["seq"] = seq
    frame["payload"] = payload
    return to_json(frame).decode()


def _output_after(db: Db, session_id: str, seq: int) -> list[Sent]:
    return [
        Sent(row.seq, frame_text("output", row.type, row.payload, row.seq))
        for row in frames.after(db, session_id, seq, limit=BATCH)
    ]


def _events_after(db: Db, session_id: str, seq: int) -> list[Sent]:
    return [_event(row) for row in events.after(db, session_id, seq, limit=BATCH)]


def _event(row: EventRow) -> Sent:
    payload = {**row.data, "event_id": row.id, "at": row.at}
    over = row.kind == "session.state" and row.data.get("to_state") in OVER
    pty_id = row.data.get("pty_id") if row.kind == PtyAllocated.kind else None
    return Sent(row.seq, frame_text("events", row.kind, payload, row.seq), over, pty_id)
