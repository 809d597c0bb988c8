"""News from Postgres: by notifications, or by looking when a test notification does not arrive.

Behind a pooler that gives a connection to others between transactions, LISTEN succeeds and nothing
is ever heard. So the feed notifies itself, and believes the connection only after it heard that.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from secrets import token_hex
from typing import Any, Protocol

import structlog
from sqlalchemy import text

from holdfast.storage.database.engine import Store
from holdfast.storage.database.postgres import connect_directly

CHANNEL = "holdfast_feed"
# A payload that is no session's id.
_TEST = "test:"
TEST_EVERY_S = 60.0
HEARD_WITHIN_S = 3.0
HEAR_S = 0.5
# Without notifications: how often sessions are looked at, and those rung who listen to any.
LOOK_EVERY_S = 0.25
RING_ANY_EVERY_S = 1.0
WARNING = (
    "notifications of Postgres do not arrive, so streams are looked at four times a second: set"
    " HOLDFAST_DATABASE_LISTEN_URL to an address past the pooler"
)
_PLACES = "SELECT id, event_seq, frame_seq FROM sessions WHERE id = ANY(%s)"
log = structlog.get_logger()


class Bells(Protocol):
    """What the watcher needs of its feed."""

    def keys(self) -> list[str]:
        """The sessions that somebody listens to."""

    def ring(self, keys: Iterable[str]) -> None:
        """Ring for these sessions, and for those who listen to any."""

    def pause(self, seconds: float) -> bool:
        """Wait; False when it is time to stop."""


class PostgresWatch:
    """Listens on a connection of its own, and tests it; falls back to looking, and tries again."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.warning: str | None = None

    def watch(self, bells: Bells) -> None:
        """Until the feed stops; trouble with a connection is the caller's to catch and retry."""
        with connect_directly(self._store.direct_url) as raw:
            raw.execute(f"LISTEN {CHANNEL}")
            bells.ring(bells.keys())
            while bells.pause(0):
                if not self._is_heard(raw, bells):
                    break
                self._note(None)
                if not self._hear(raw, bells):
                    return
        self._note(WARNING)
        self._look(bells)

    def _is_heard(self, raw: Any, bells: Bells) -> bool:
        """Whether a notification that another connection sends comes in on this one."""
        test = f"{_TEST}{token_hex(8)}"
        notify = text("SELECT pg_notify(:channel, :test)")
        self._store.write(
            lambda db: db.connection().execute(notify, {"channel": CHANNEL, "test": test})
        )
        deadline = time.monotonic() + HEARD_WITHIN_S
        while time.monotonic() < deadline:
            for notification in raw.notifies(timeout=HEAR_S, stop_after=1):
                if notification.payload == test:
                    return True
                _ring(bells, notification.payload)
        return False

    def _hear(self, raw: Any, bells: Bells) -> bool:
        """Ring for what is heard until the next test is due; False when it is time to stop."""
        next_test = time.monotonic() + TEST_EVERY_S
        while time.monotonic() < next_test:
            if not bells.pause(0):
                return False
            for notification in raw.notifies(timeout=HEAR_S, stop_after=1):
                _ring(bells, notification.payload)
        return True

    def _look(self, bells: Bells) -> None:
        """Look at the sessions that somebody waits for, until listening is tried again."""
        seen: dict[str, tuple[int, int]] = {}
        until = time.monotonic() + TEST_EVERY_S
        ring_any_at = 0.0
        with connect_directly(self._store.url) as raw:
            while bells.pause(LOOK_EVERY_S) and time.monotonic() < until:
                rows = raw.execute(_PLACES, (bells.keys(),)).fetchall()
                now = {row[0]: (row[1], row[2]) for row in rows}
                moved = [key for key, place in now.items() if seen.get(key) != place]
                seen = now
                if moved or time.monotonic() >= ring_any_at:
                    bells.ring(moved)
                    ring_any_at = time.monotonic() + RING_ANY_EVERY_S

    def _note(self, warning: str | None) -> None:
        if warning != self.warning:
            if warning is not None:
                log.warning("feed.not_notified", words=warning)
            else:
                log.info("feed.notified_again")
            self.warning = warning


def _ring(bells: Bells, payload: str) -> None:
    if not payload.startswith(_TEST):
        bells.ring([payload])
