"""What sockets share: one tail per session, this process's leases, and their renewal."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from api.stream.tail import Tail
from holdfast.domain.errors import Unavailable
from holdfast.domain.events import SessionDetached
from holdfast.domain.ids import new_id
from holdfast.storage.database.engine import Db
from holdfast.storage.database.opening import OpenStore
from holdfast.storage.log import events
from holdfast.storage.log.feed import Feed
from holdfast.storage.sessions import leases, sessions

LEASE_LIFE_MS = 20_000
RENEW_S = 5.0
OWED_MAX = 10_000


class Hub:
    """The sockets of this process."""

    def __init__(self, store: OpenStore, feed: Feed) -> None:
        self.store = store
        self.feed = feed
        # Host, pid and a nonce: enough to see that a holder on this machine is dead.
        self.process = f"{socket.gethostname()}:{os.getpid()}:{new_id()}"
        self._tails: dict[str, Tail] = {}
        self._renewal: asyncio.Task[None] | None = None
        self._held = 0
        # What could not be written while the database was away; a lease would stay for ever.
        self._owed: deque[Callable[[Db], object]] = deque(maxlen=OWED_MAX)

    async def start(self) -> None:
        """Free what dead processes of this machine held, and keep our own leases alive."""
        await self.store.awrite(self._free_the_dead)
        self._renewal = asyncio.create_task(self._renew())

    async def stop(self) -> None:
        """Give back every lease."""
        if self._renewal is not None:
            self._renewal.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._renewal
        for tail in self._tails.values():
            tail.close()
        with contextlib.suppress(Unavailable):  # they expire
            await self.store.awrite(lambda db: leases.release_process(db, self.process))

    @asynccontextmanager
    async def tail(self, session_id: str) -> AsyncIterator[Tail]:
        """The session's tail, shared by all who watch it here."""
        tail = self._tails.get(session_id)
        if tail is None:
            tail = self._tails[session_id] = Tail(self.store, self.feed, session_id)
        tail.watchers += 1
        try:
            yield tail
        finally:
            tail.watchers -= 1
            if tail.watchers == 0:
                tail.close()
                if self._tails.get(session_id) is tail:
                    del self._tails[session_id]

    async def attach(self, session_id: str) -> str | None:
        """Become the session's one attached operator: the lease's holder, or None if taken."""
        holder = f"{self.process}/{new_id()}"
        name = leases.attach_lease(session_id)

        def acquire(db: Db) -> bool:
            if leases.acquire(db, name, holder, life_ms=LEASE_LIFE_MS):
                return True
            self._free_the_dead(db, only=leases.holder(db, name))
            return leases.acquire(db, name, holder, life_ms=LEASE_LIFE_MS)

        if not await self.store.awrite(acquire):
            return None
        self._held += 1
        return holder

    async def detach(self, session_id: str, holder: str) -> None:
        """Let the next one in."""
        self._held -= 1
        name = leases.attach_lease(session_id)
        await self.write_once_possible(lambda db: leases.release(db, name, holder))

    async def write_once_possible(self, work: Callable[[Db], object]) -> None:
        """Write now, or as soon as a database that is away is back."""
        self._owed.append(work)
        with contextlib.suppress(Unavailable):
            await self._pay()

    async def _renew(self) -> None:
        while True:
            await asyncio.sleep(RENEW_S)
            with contextlib.suppress(Unavailable):
                await self._pay()
                if self._held > 0:
                    await self.store.awrite(
                        lambda db: leases.renew_all(db, self.process, life_ms=LEASE_LIFE_MS)
                    )

    async def _pay(self) -> None:
        """Write what is owed, oldest first; what fails is owed again."""
        for _ in range(len(self._owed)):
            work = self._owed.popleft()
            try:
                await self.store.awrite(work)
            except Unavailable:
                self._owed.appendleft(work)
                raise

    def _free_the_dead(self, db: Db, only: str | None = None) -> None:
        holders = [only] if only is not None else leases.holders(db)
        for process in {holder.partition("/")[0] for holder in holders}:
            if process != self.process and _is_dead(process):
                for session_id in leases.attached_by(db, process):
                    _lost(db, session_id)
                leases.release_process(db, process)


def _lost(db: Db, session_id: str) -> None:
    """Record the leaving that the dead process could not (K-092)."""
    row = sessions.find(db, session_id)
    if row is not None:
        left = SessionDetached(session_id=session_id, reason="error", user_id=row.created_by)
        events.append(db, session_id, left)


def _is_dead(process: str) -> bool:
    """Whether the process that made this name is gone for sure; another machine's never is."""
    host, _, rest = process.rpartition(":")[0].rpartition(":")
    if host != socket.gethostname() or not rest.isdigit():
        return False
    pid = int(rest)
    if pid == os.getpid():
        return True  # our pid under another nonce: whoever had it before us
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    except OSError:
        return False
    return False
