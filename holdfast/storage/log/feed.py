"""Wakes those who wait for news of a session: SQLite is watched, Postgres notifies."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import TracebackType
from typing import Any

import sqlalchemy
from sqlalchemy import text

from holdfast.domain.errors import Unavailable
from holdfast.storage.database.engine import Db, Store
from holdfast.storage.log.feed_postgres import CHANNEL, PostgresWatch
from holdfast.storage.log.news import News, Places, places, read_news

# Listens to every session.
ANY = "*"
POLL_S = 0.010
RECONNECT_S = 0.2
LISTENERS_MAX = 10_000
# Calls that a busy loop has not come to; beyond these, news come without rows.
UNDERWAY_MAX = 64
_NOTHING: Mapping[str, News] = {}
Ears = list[tuple["Listener", News | None]]


def notify(db: Db, session_id: str) -> None:
    """Tell listeners when this transaction commits; SQLite needs no telling."""
    if db.get_bind().dialect.name == "postgresql":
        statement = text("SELECT pg_notify(:channel, :session_id)")
        db.connection().execute(statement, {"channel": CHANNEL, "session_id": session_id})


class Listener:
    """One waiter's bell. It may ring without news, and never stays silent after some.

    `heard` is called in the waiter's loop at each ring, in order, with what the watcher knows.
    """

    def __init__(
        self, feed: Feed, key: str, heard: Callable[[News | None], None] | None = None
    ) -> None:
        self._feed = feed
        self._bell = asyncio.Event()
        self._heard = heard
        self.loop = asyncio.get_running_loop()
        self.key = key

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

    def ring(self, news: News | None) -> None:
        """In the waiter's own loop only."""
        self._bell.set()
        if self._heard is not None:
            self._heard(news)


class Feed:
    """One watcher thread per process; it sleeps while nobody listens."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._listeners: dict[str, set[Listener]] = {}
        self._changed = threading.Condition()
        self._closed = False
        self._thread: threading.Thread | None = None
        self._underway: deque[None] = deque()
        self._notified = None if store.is_sqlite else PostgresWatch(store)
        self._watch: Callable[[Feed], None] = (
            _watch_sqlite if self._notified is None else self._notified.watch
        )

    def listen(self, key: str, heard: Callable[[News | None], None] | None = None) -> Listener:
        """A bell for one session, or for `ANY`; use it as a context manager."""
        return Listener(self, key, heard)

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
        self._tell([(listener, None)])

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
    def warning(self) -> str | None:
        """What slows the feed down, in words for the operator."""
        return None if self._notified is None else self._notified.warning

    @property
    def store(self) -> Store:
        """The database that is watched."""
        return self._store

    def keys(self) -> list[str]:
        """The sessions that somebody listens to."""
        with self._changed:
            return [key for key in self._listeners if key != ANY]

    def ring(self, keys: Iterable[str], news: Mapping[str, News] = _NOTHING) -> None:
        """Ring the bells of these sessions and of those who listen to any."""
        if len(self._underway) >= UNDERWAY_MAX:
            news = {key: News(one.event_seq, one.frame_seq) for key, one in news.items()}
        with self._changed:
            ears = [
                (listener, news.get(key))
                for key in (*keys, ANY)
                for listener in self._listeners.get(key, ())
            ]
        self._tell(ears)

    def pause(self, seconds: float) -> bool:
        """Wait a moment, or for as long as nobody listens; False when it is time to stop."""
        with self._changed:
            if not self._closed:
                self._changed.wait(seconds)
            while not self._listeners and not self._closed:
                self._changed.wait()
            return not self._closed

    def _run(self) -> None:
        while not self._closed:
            with contextlib.suppress(sqlalchemy.exc.SQLAlchemyError, *_driver_errors(self._store)):
                self._watch(self)
            # Whatever broke, nobody may wait for news that came meanwhile.
            self.ring(self.keys())
            self.pause(RECONNECT_S)

    def _tell(self, ears: Ears) -> None:
        """From any thread. One call wakes a loop for all its bells: waking is the dear part."""
        for loop in {listener.loop for listener, _ in ears}:
            its = [(listener, news) for listener, news in ears if listener.loop is loop]
            self._underway.append(None)
            try:
                loop.call_soon_threadsafe(self._ring_all, its)
            except RuntimeError:  # the loop is closed by now
                self._underway.pop()

    def _ring_all(self, ears: Ears) -> None:
        self._underway.popleft()
        for listener, news in ears:
            listener.ring(news)


def _driver_errors(store: Store) -> tuple[type[Exception], ...]:
    return (store.reader.dialect.loaded_dbapi.Error, Unavailable, OSError)


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
    """Which sessions moved is one query, so a commit wakes only those who wait for it."""
    with _raw_connection(feed) as raw:
        seen_version: int | None = None
        seen: Places = {}
        while feed.pause(POLL_S):
            version = int(raw.execute("PRAGMA data_version").fetchone()[0])
            keys = feed.keys()
            if version == seen_version and seen.keys() >= set(keys):
                continue
            seen_version = version
            now = places(raw, keys)
            moved = [key for key in keys if seen.get(key) != now.get(key)]
            feed.ring(moved, read_news(raw, seen, {key: now[key] for key in moved if key in now}))
            seen = {key: now.get(key, (0, 0)) for key in keys}
