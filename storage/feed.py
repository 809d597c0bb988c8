"""Wakes those who wait for news of a session: SQLite is watched, Postgres notifies."""

from __future__ import annotations

import asyncio
import contextlib
import json
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import TracebackType
from typing import Any, Protocol

import sqlalchemy
from sqlalchemy import text

from storage.engine import Db, Store

CHANNEL = "holdfast_feed"
# Listens to every session.
ANY = "*"
POLL_S = 0.010
RECONNECT_S = 0.2
LISTENERS_MAX = 10_000
_UNKNOWN: Mapping[str, tuple[int, int]] = {}
_SEQS = "SELECT id, event_seq, frame_seq FROM sessions WHERE id IN (SELECT value FROM json_each(?))"


def notify(db: Db, session_id: str) -> None:
    """Tell listeners when this transaction commits; SQLite needs no telling."""
    if db.get_bind().dialect.name == "postgresql":
        statement = text("SELECT pg_notify(:channel, :session_id)")
        db.connection().execute(statement, {"channel": CHANNEL, "session_id": session_id})


class Listener:
    """One waiter's bell. It may ring without news, and never stays silent after some."""

    def __init__(self, feed: Feed, key: str) -> None:
        self._feed = feed
        self._loop = asyncio.get_running_loop()
        self._bell = asyncio.Event()
        self.key = key
        # How far the session's events and frames are, where the watcher knows.
        self.seqs: tuple[int, int] | None = None

    def __enter__(self) -> Listener:
        self._feed.add(self)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._feed.remove(self)

    async def wait(self, timeout_s: float) -> bool:
        """Wait for the bell; False when it was silent for `timeout_s`. Clears it."""
        try:
            async with asyncio.timeout(timeout_s):
                await self._bell.wait()
        except TimeoutError:
            return False
        self._bell.clear()
        return True

    def ring(self) -> None:
        """From any thread."""
        with contextlib.suppress(RuntimeError):  # the loop may be closed by now
            self._loop.call_soon_threadsafe(self._bell.set)


class Feed:
    """One watcher thread per process; it sleeps while nobody listens."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._listeners: dict[str, set[Listener]] = {}
        self._changed = threading.Condition()
        self._closed = False
        self._thread: threading.Thread | None = None
        watch = _watch_sqlite if store.is_sqlite else _watch_postgres
        self._watch: Callable[[Feed], None] = watch

    def listen(self, key: str) -> Listener:
        """A bell for one session, or for `ANY`; use it as a context manager."""
        return Listener(self, key)

    def add(self, listener: Listener) -> None:
        """Begin to ring it. It rings at once: something may have happened before."""
        with self._changed:
            if sum(map(len, self._listeners.values())) >= LISTENERS_MAX:
                raise RuntimeError("too many listeners")
            self._listeners.setdefault(listener.key, set()).add(listener)
            if self._thread is None and not self._closed:
                self._thread = threading.Thread(target=self._run, name="feed", daemon=True)
                self._thread.start()
            self._changed.notify_all()
        listener.ring()

    def remove(self, listener: Listener) -> None:
        """Ring it no more."""
        with self._changed:
            waiting = self._listeners.get(listener.key, set())
            waiting.discard(listener)
            if not waiting:
                self._listeners.pop(listener.key, None)

    def close(self) -> None:
        """Stop watching."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
            thread = self._thread
        if thread is not None:
            thread.join(timeout=5)

    @property
    def store(self) -> Store:
        """The database that is watched."""
        return self._store

    def keys(self) -> list[str]:
        """The sessions that somebody listens to."""
        with self._changed:
            return [key for key in self._listeners if key != ANY]

    def ring(self, keys: Iterable[str], seqs: Mapping[str, tuple[int, int]] = _UNKNOWN) -> None:
        """Ring the bells of these sessions and of those who listen to any."""
        with self._changed:
            for key in (*keys, ANY):
                for listener in self._listeners.get(key, ()):
                    listener.seqs = seqs.get(key)
                    listener.ring()

    def pause(self, seconds: float) -> bool:
        """Wait a moment, or for as long as nobody listens; False when it is time to stop."""
        with self._changed:
            if not self._closed:
                self._changed.wait(seconds)
            while not self._listeners and not self._closed:
                self._changed.wait()
            return not self._closed

    @property
    def closed(self) -> bool:
        """Whether `close` was called."""
        return self._closed

    def _run(self) -> None:
        while not self._closed:
            with contextlib.suppress(sqlalchemy.exc.SQLAlchemyError, *_driver_errors(self._store)):
                self._watch(self)
            # Whatever broke, nobody may wait for news that came meanwhile.
            self.ring(self.keys())
            self.pause(RECONNECT_S)


def _driver_errors(store: Store) -> tuple[type[Exception], ...]:
    return (store.reader.dialect.loaded_dbapi.Error, OSError)


class _Raw(Protocol):
    def execute(self, sql: str, parameters: tuple[str, ...] = ..., /) -> Any: ...


@contextlib.contextmanager
def _raw_connection(feed: Feed) -> Iterator[Any]:
    """A connection of the watcher's own, out of the pool."""
    pooled = feed.store.reader.raw_connection()
    pooled.detach()
    try:
        yield pooled.dbapi_connection
    finally:
        pooled.close()


def _watch_sqlite(feed: Feed) -> None:
    with _raw_connection(feed) as raw:
        seen_version: int | None = None
        seen: dict[str, tuple[int, int]] = {}
        while feed.pause(POLL_S):
            version = int(raw.execute("PRAGMA data_version").fetchone()[0])
            keys = feed.keys()
            if version == seen_version and seen.keys() >= set(keys):
                continue
            seen_version = version
            now = _seqs(raw, keys)
            feed.ring([key for key in keys if seen.get(key) != now.get(key)], now)
            seen = {key: now.get(key, (0, 0)) for key in keys}


def _seqs(raw: _Raw, keys: list[str]) -> dict[str, tuple[int, int]]:
    """Which sessions moved is one query, so a commit wakes only those who wait for it."""
    rows = raw.execute(_SEQS, (json.dumps(keys),)).fetchall()
    return {row[0]: (row[1], row[2]) for row in rows}


def _watch_postgres(feed: Feed) -> None:
    with _raw_connection(feed) as raw:
        raw.autocommit = True
        raw.execute(f"LISTEN {CHANNEL}")
        feed.ring(feed.keys())
        while feed.pause(0):
            for notification in raw.notifies(timeout=0.5, stop_after=1):
                feed.ring([notification.payload])
