"""One store per process: transactions queue fairly, retry while busy, and lose no update."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random
from typing import TypeVar

from sqlalchemy import Engine, create_engine, event, text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.exc import TimeoutError as PoolTimeout
from sqlalchemy.pool import QueuePool
from sqlmodel import Session

from holdfast.storage.database.postgres import PostgresOptions, normal_url, pooled_engine
from holdfast.storage.database.sqlite_driver import connect_hook, dbapi_module
from holdfast.storage.database.trouble import (
    StoreAway,
    StoreBusy,
    is_away,
    is_passing,
    is_timeout,
    unwritable,
)
from holdfast.storage.database.write_lock import WriteLock

Db = Session
T = TypeVar("T")

WRITE_BUDGET_S = 20.0
# A database that starts again is back within this time; one that is away for longer is said to be.
AWAY_BUDGET_S = 1.0
# Between two attempts everybody is told so at once: no thread waits for what will not come.
AWAY_REST_S = 0.5
AWAY_WORDS = "the database does not answer; try again"
RETRY_MIN_S, RETRY_MAX_S = 0.020, 0.150
_random = Random()
CHECKPOINT_EVERY_N_WRITES = 50
READERS = 8
# What was said would stand in the words of an error, and with it in logs and Temporal's history.
HIDE_PARAMETERS = True


class Store:
    """The database of this process. `write` and `read` run a function in one transaction."""

    def __init__(
        self, url: str, *, synchronous: str = "FULL", postgres: PostgresOptions | None = None
    ) -> None:
        self.url = normal_url(url)
        options = postgres or PostgresOptions()
        # Past a pooler: for LISTEN, locks and migrations.
        self.direct_url = normal_url(options.direct_url or url)
        self.is_sqlite = self.url.startswith("sqlite")
        self._writes = 0
        # Zero while the database answers.
        self._away_until = 0.0
        self._in_process = threading.Lock()
        self._writer_thread = ThreadPoolExecutor(1, thread_name_prefix="store-write")
        self._reader_threads = ThreadPoolExecutor(READERS, thread_name_prefix="store-read")
        if self.is_sqlite:
            path = Path(self.url.removeprefix("sqlite:///"))
            self._lock: WriteLock | None = WriteLock(path.with_name(path.name + ".lock"))
            self.writer = _sqlite_engine(self.url, synchronous, readonly=False)
            self.reader = _sqlite_engine(self.url, synchronous, readonly=True)
        else:
            self._lock = None
            self.writer = self.reader = pooled_engine(
                self.url, options, hide_parameters=HIDE_PARAMETERS
            )

    def write(self, work: Callable[[Db], T]) -> T:
        """Run `work` in one write transaction; it may run again, so it must be repeatable."""
        deadline = time.monotonic() + WRITE_BUDGET_S
        return self._insist(lambda: self._write_once(work, deadline), deadline)

    def read(self, work: Callable[[Db], T]) -> T:
        """Run `work` in one read transaction; it never waits for a writer. It may run again."""
        if self.is_sqlite:
            return self._read_once(work)
        return self._insist(lambda: self._read_once(work), time.monotonic() + WRITE_BUDGET_S)

    async def awrite(self, work: Callable[[Db], T]) -> T:
        """`write`, off the event loop. A cancelled caller leaves a whole transaction behind."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._writer_thread, self.write, work)

    async def aread(self, work: Callable[[Db], T]) -> T:
        """`read`, off the event loop."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._reader_threads, self.read, work)

    def close(self) -> None:
        """Give back threads and connections."""
        self._writer_thread.shutdown(wait=True)
        self._reader_threads.shutdown(wait=True)
        self.writer.dispose()
        self.reader.dispose()
        if self._lock is not None:
            self._lock.close()

    def _insist(self, attempt: Callable[[], T], deadline: float) -> T:
        """The attempt's answer; a busy database is asked for long, one that is away briefly."""
        if time.monotonic() < self._away_until:
            raise StoreAway(AWAY_WORDS)
        away_deadline: float | None = 0.0 if self._away_until else None
        while True:
            try:
                answer = attempt()
            except PoolTimeout as error:
                raise StoreBusy("all connections to the database are in use; try again") from error
            except DBAPIError as error:
                final = _final(error, deadline)
                if final is error:
                    raise
                if final is not None:
                    raise final from error
                if is_away(error):
                    now = time.monotonic()
                    away_deadline = now + AWAY_BUDGET_S if away_deadline is None else away_deadline
                    if now >= away_deadline:
                        self._away_until = now + AWAY_REST_S
                        raise StoreAway(AWAY_WORDS) from error
                time.sleep(_random.uniform(RETRY_MIN_S, RETRY_MAX_S))
            else:
                self._away_until = 0.0
                return answer

    def _read_once(self, work: Callable[[Db], T]) -> T:
        with Session(self.reader, expire_on_commit=False) as db:
            return work(db)

    def _write_once(self, work: Callable[[Db], T], deadline: float) -> T:
        with self._in_process:
            if self._lock is None:
                return self._transact(work)
            with self._lock.held(deadline):
                answer = self._transact(work)
            self._writes += 1
            if self._writes % CHECKPOINT_EVERY_N_WRITES == 0:
                self._passive_checkpoint()
            return answer

    def _transact(self, work: Callable[[Db], T]) -> T:
        with Session(self.writer, expire_on_commit=False) as db:
            answer = work(db)
            db.commit()
            return answer

    def _passive_checkpoint(self) -> None:
        with self.reader.connect() as connection:
            raw = connection.connection.driver_connection
            assert raw is not None
            raw.execute("PRAGMA wal_checkpoint(PASSIVE)")


def _final(error: DBAPIError, deadline: float) -> Exception | None:
    """What to raise instead of another attempt; None when another one may help."""
    if (full := unwritable(error)) is not None:
        return full
    if is_timeout(error):
        return StoreBusy("the database took too long over this; try again")
    if not is_passing(error):
        return error
    if time.monotonic() > deadline:
        return StoreBusy("the database is busy; try again")
    return None


def _sqlite_engine(url: str, synchronous: str, *, readonly: bool) -> Engine:
    engine = create_engine(
        url,
        module=dbapi_module(),
        poolclass=QueuePool,
        pool_size=READERS if readonly else 1,
        max_overflow=8 if readonly else 0,
        connect_args={"check_same_thread": False},
        hide_parameters=HIDE_PARAMETERS,
    )
    event.listen(engine, "connect", connect_hook(synchronous))

    # Without both hooks the driver begins late and concurrent updates are lost silently.
    @event.listens_for(engine, "begin")
    def _begin(connection: object) -> None:
        connection.exec_driver_sql("BEGIN" if readonly else "BEGIN IMMEDIATE")  # type: ignore[attr-defined]

    return engine


def ping(db: Db) -> None:
    """One trip to the database."""
    db.connection().execute(text("SELECT 1"))
