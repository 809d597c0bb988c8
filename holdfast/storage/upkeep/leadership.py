"""Which of several workers does what one must do: pruning, retention, watching, poking the queue.

On Postgres the leader renews a row; another takes it over when it did not change for some seconds
of its own clock, so that clocks need not agree and a vanished machine holds nothing. On SQLite all
are on one machine, and a lock on a file dies with its process.

Two may lead for a moment, after one was stopped and woken: what they do must bear that.
"""

from __future__ import annotations

import fcntl
import os
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from sqlalchemy import select, update

from holdfast.domain.clock import now_ms
from holdfast.domain.errors import Unavailable
from holdfast.domain.ids import new_id
from holdfast.storage.database.engine import Db, Store
from holdfast.storage.database.opening import OpenStore
from holdfast.storage.database.rows import insert_once, table
from holdfast.storage.database.tables_history import Lease
from holdfast.storage.sessions import leases

NAME = "leader:worker"
# A take-over needs at most the life and one look.
EVERY_S = 4.0
LIFE_S = 10.0
_leases = table(Lease)


class Leadership(Protocol):
    """One candidate."""

    async def stand(self) -> bool:
        """Take, renew or miss the lead; whether this process leads now."""

    async def resign(self) -> None:
        """Let another lead at once."""


def leadership(store: OpenStore) -> Leadership:
    """The candidate of this process."""
    return FileLeadership(store.home) if store.is_sqlite else RowLeadership(store)


class FileLeadership:
    """The lead of all processes that share a home."""

    def __init__(self, home: Path) -> None:
        self._path = home / "leader.lock"
        self._file: int | None = None

    async def stand(self) -> bool:
        """Keep the lock, or take it if it is free."""
        if self._file is not None:
            return True
        file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(file)
            return False
        self._file = file
        return True

    async def resign(self) -> None:
        """Give the lock back."""
        file, self._file = self._file, None
        if file is not None:
            os.close(file)


class RowLeadership:
    """The lead of all processes that share a Postgres database."""

    def __init__(
        self,
        store: Store,
        *,
        life_s: float = LIFE_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.holder = f"{socket.gethostname()}:{os.getpid()}:{new_id()}/leader"
        self._store = store
        self._life_s = life_s
        self._clock = clock
        self._seen: tuple[str, int] | None = None
        self._seen_at = 0.0
        self._renewed_at: float | None = None

    async def stand(self) -> bool:
        """One transaction. While the database is away, a leader leads for half a life more."""
        asked_at = self._clock()
        try:
            leads = await self._store.awrite(self._stand)
        except Unavailable:
            renewed_at = self._renewed_at
            return renewed_at is not None and self._clock() - renewed_at < self._life_s / 2
        self._renewed_at = asked_at if leads else None
        return leads

    async def resign(self) -> None:
        """Remove the row, if it is ours; a database that is away lets it grow old."""
        self._renewed_at = None
        try:
            await self._store.awrite(lambda db: leases.release(db, NAME, self.holder))
        except Unavailable:
            return

    def _stand(self, db: Db) -> bool:
        row = select(_leases.c.holder, _leases.c.expires_at).where(_leases.c.name == NAME)
        found = db.connection().execute(row).first()
        if found is None:
            mine = {"name": NAME, "holder": self.holder, "expires_at": now_ms()}
            return insert_once(db, Lease, mine)
        seen = (str(found.holder), int(found.expires_at))
        if seen[0] == self.holder:
            return self._take(db, seen)
        if seen != self._seen:
            self._seen, self._seen_at = seen, self._clock()
            return False
        return self._clock() - self._seen_at >= self._life_s and self._take(db, seen)

    def _take(self, db: Db, seen: tuple[str, int]) -> bool:
        """Only from whom we saw: of several who find the leader dead, one is the first."""
        renewed = max(now_ms(), seen[1] + 1)
        taken = db.connection().execute(
            update(_leases)
            .where(
                _leases.c.name == NAME,
                _leases.c.holder == seen[0],
                _leases.c.expires_at == seen[1],
            )
            .values(holder=self.holder, expires_at=renewed)
        )
        return taken.rowcount == 1
