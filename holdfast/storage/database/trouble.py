"""What the database may answer when it cannot: busy, full, or broken."""

from __future__ import annotations

import errno

from sqlalchemy.exc import DataError, DBAPIError

from holdfast.domain.errors import Unavailable


class StoreBusy(Unavailable):
    """Others wrote for longer than the write's time budget."""


class StoreUnwritable(Unavailable):
    """The disk is full or the database is read-only: wait for somebody to mend it."""


class StoreRefused(Exception):
    """The store cannot be opened; the message says what to do."""


# A value that the database cannot hold, as Postgres no NUL in text.
UnstorableValue = DataError

_PASSING = ("database is locked", "database table is locked", "busy", "deadlock detected")
_PASSING_STATES = {"40001", "40P01", "55P03", "57P01", "57P02", "57P03", "08006", "08003", "08001"}
_UNWRITABLE = {
    "database or disk is full": "the disk is full",
    "readonly database": "the database is read-only",
    "disk i/o error": "the disk does not take writes",
    "unable to open database file": "the database file cannot be opened",
    "no space left": "the disk is full",
}
_UNWRITABLE_FILES = {
    errno.ENOSPC: "the disk is full",
    errno.EDQUOT: "the disk quota is used up",
    errno.EROFS: "the disk is read-only",
    errno.EIO: "the disk does not take writes",
}
_DAMAGE = ("malformed", "not a database", "corrupt")


def is_passing(error: DBAPIError) -> bool:
    """Whether the same transaction may succeed in a moment."""
    state = getattr(error.orig, "sqlstate", None)
    if state is not None:
        return state in _PASSING_STATES or error.connection_invalidated
    words = str(error.orig).lower()
    return error.connection_invalidated or any(word in words for word in _PASSING)


def is_damage(error: Exception) -> bool:
    """Whether the database itself is broken, so that no repeat can help."""
    words = str(error.orig).lower() if isinstance(error, DBAPIError) else ""
    return any(word in words for word in _DAMAGE)


def unwritable(error: DBAPIError) -> StoreUnwritable | None:
    """The plain words for a store that takes no writes, if that is the trouble."""
    words = str(error.orig).lower()
    for sign, meaning in _UNWRITABLE.items():
        if sign in words:
            return StoreUnwritable(f"cannot write: {meaning}")
    return None


def unwritable_file(error: OSError) -> StoreUnwritable | None:
    """The same for a file beside the database."""
    meaning = _UNWRITABLE_FILES.get(error.errno or 0)
    return None if meaning is None else StoreUnwritable(f"cannot write: {meaning}")
