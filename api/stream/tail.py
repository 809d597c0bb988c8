"""The newest frames of one session, read once for all who watch it and encoded once."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Iterable
from typing import Literal

from api.stream.outgoing import Sent, event_frame, output_frame
from holdfast.domain.errors import Unavailable
from holdfast.storage.database.engine import Db
from holdfast.storage.database.opening import OpenStore
from holdfast.storage.log import events, frames
from holdfast.storage.log.feed import Feed
from holdfast.storage.log.news import News

Channel = Literal["output", "events"]
BATCH = 500
KEPT_FRAMES_MAX = 500
KEPT_BYTES_MAX = 1024 * 1024
# The bell is never trusted for longer than this.
LOOK_AGAIN_S = 5.0
# A database that is away is waited for; after this, sockets are told to come again (1013).
AWAY_S, AWAY_PAUSE_S = 60.0, 0.5


class Gap(Exception):
    """Frames that a client still needed are gone."""


class Tail:
    """Both channels of a session. Reading is by seq, so nobody's pace is anybody else's."""

    def __init__(self, store: OpenStore, feed: Feed, session_id: str) -> None:
        self.watchers = 0
        self._bell = asyncio.Event()
        self._rung = 0
        self._output = _Kept(store, session_id, _output_after)
        # Events that were read may be younger than the last news; what was said before them too.
        self._events = _Kept(store, session_id, _events_after, found=self._output.doubt)
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
        return await (self._output if channel == "output" else self._events).after(after)

    async def wait(self, rung: int) -> None:
        """Until there was news since `rung`."""
        while self._rung <= rung:
            await self._bell.wait()

    async def _listen(self, feed: Feed, session_id: str) -> None:
        with feed.listen(session_id, self._hear):
            while True:
                await asyncio.sleep(LOOK_AGAIN_S)
                self._hear(None)

    def _hear(self, news: News | None) -> None:
        if news is None:
            self._output.doubt()
            self._events.doubt()
        else:
            # Both in one go: nobody sees an event before what was said before it.
            self._output.take(map(output_frame, news.frames), news.frame_seq)
            self._events.take(map(event_frame, news.events), news.event_seq)
        self._rung += 1
        bell, self._bell = self._bell, asyncio.Event()
        bell.set()


class _Kept:
    """A run of consecutive frames that ends at `end`, the newest that was seen; it may be empty."""

    def __init__(
        self,
        store: OpenStore,
        session_id: str,
        load: Callable[[Db, str, int], list[Sent]],
        *,
        found: Callable[[], None] | None = None,
    ) -> None:
        self._store = store
        self._session_id = session_id
        self._load = load
        self._found = found
        self._frames: deque[Sent] = deque()
        self._bytes = 0
        self._end = 0
        # A doubt is settled by a read that began after it and found the end.
        self._doubts, self._settled = 1, 0
        self._reading = asyncio.Lock()

    def doubt(self) -> None:
        """There may be frames after `end` that nobody told us of."""
        self._doubts += 1

    def take(self, carried: Iterable[Sent], newest: int) -> None:
        """News: frames, as far as they were carried, and how far the channel is."""
        self._extend(carried)
        if newest > self._end:
            self.doubt()

    async def after(self, seq: int) -> list[Sent]:
        """The next frames; those at the end are read by one for all, those before by each."""
        found = self._at_hand(seq)
        if found is not None:
            return found
        if seq < self._end:
            return await self._read(seq)
        async with self._reading:
            found = self._at_hand(seq)
            return await self._read(seq) if found is None else found

    def _at_hand(self, seq: int) -> list[Sent] | None:
        """The next frames if they are known without reading, else None."""
        if self._frames and self._frames[0].seq - 1 <= seq < self._end:
            skip = seq - self._frames[0].seq + 1
            return [self._frames[at] for at in range(skip, min(skip + BATCH, len(self._frames)))]
        return [] if seq >= self._end and self._settled == self._doubts else None

    async def _read(self, seq: int) -> list[Sent]:
        doubts = self._doubts
        found = await self._patiently(lambda db: self._load(db, self._session_id, seq))
        if found and found[0].seq != seq + 1:
            raise Gap
        if seq > self._end:
            self._begin(seq)
        self._extend(found)
        if len(found) < BATCH:
            self._settled = max(self._settled, doubts)
        elif found[-1].seq == self._end:
            self.doubt()
        if found and self._found is not None:
            self._found()
        return found

    async def _patiently(self, work: Callable[[Db], list[Sent]]) -> list[Sent]:
        """Read, however long the database is away, up to a minute: watchers see a pause."""
        deadline = time.monotonic() + AWAY_S
        while True:
            try:
                return await self._store.aread(work)
            except Unavailable:
                if time.monotonic() > deadline:
                    raise
            await asyncio.sleep(AWAY_PAUSE_S)

    def _begin(self, seq: int) -> None:
        """Somebody is ahead of what is kept, so the run begins anew there."""
        self._frames.clear()
        self._bytes = 0
        self._end = seq

    def _extend(self, found: Iterable[Sent]) -> None:
        """Keep what follows without a hole; the rest is known, or will be read."""
        for frame in found:
            if frame.seq == self._end + 1:
                self._end = frame.seq
                self._frames.append(frame)
                self._bytes += len(frame.wire)
        while self._frames and (
            len(self._frames) > KEPT_FRAMES_MAX or self._bytes > KEPT_BYTES_MAX
        ):
            self._bytes -= len(self._frames.popleft().wire)


def _output_after(db: Db, session_id: str, seq: int) -> list[Sent]:
    return list(map(output_frame, frames.texts_after(db, session_id, seq, limit=BATCH)))


def _events_after(db: Db, session_id: str, seq: int) -> list[Sent]:
    return list(map(event_frame, events.after(db, session_id, seq, limit=BATCH)))
