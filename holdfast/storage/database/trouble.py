"""What the database may answer when it cannot: busy, full, or broken."""

from __future__ import annotations

import errno
import re

from sqlalchemy.exc import DataError, DBAPIError, OperationalError

from holdfast.domain.errors import Unavailable


class StoreBusy(Unavailable):
    """Others wrote for longer than the write's time budget."""


class StoreAway(Unavailable):
    """The database server cannot be reached now; it is waited for."""


class StoreUnwritable(Unavailable):
    """The disk is full or the database is read-only: wait for somebody to mend it."""


class StoreRefused(Exception):
    """The store cannot be opened; the message says what to do."""


# A value that the database cannot hold, as Postgres no NUL in text.
UnstorableValue = DataError

_PASSING = ("database is locked", "database table is locked", "busy", "deadlock detected")
# A server that stops, starts, or has no connection left; class 08 is the connection itself.
_AWAY_STATES = {"57P01", "57P02", "57P03", "57P05", "25P03", "53300", "08000", "08006", "08003"}
_AWAY_STATES |= {"08001", "08004", "08P01"}
_PASSING_STATES = {"40001", "40P01", "55P03"} | _AWAY_STATES
# What no waiting mends, in the server's or the client library's words: it has no code for them.
_REFUSING = (
    "password authentication failed",
    "no password supplied",
    "no pg_hba.conf entry",
    "certificate verify failed",
    "does not match host name",
    "root certificate file",
    "does not support ssl",
    "invalid sslmode",
    "invalid connection option",
    "unsupported startup parameter",
    'role "',
)
_NO_DATABASE = re.compile(r'database "[^"]*" does not exist')
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
    if is_away(error):
        return True
    words = str(error.orig).lower()
    return error.connection_invalidated or any(word in words for word in _PASSING)


def is_away(error: DBAPIError) -> bool:
    """Whether the database server could not be reached, or ended the connection."""
    state = getattr(error.orig, "sqlstate", None)
    if state is not None:
        return state in _AWAY_STATES or error.connection_invalidated
    return _is_of_postgres(error) and (error.connection_invalidated or not is_refusing(error))


def is_timeout(error: DBAPIError) -> bool:
    """Whether one statement took longer than it may."""
    return getattr(error.orig, "sqlstate", None) == "57014"


def is_refusing(error: DBAPIError) -> bool:
    """Whether the server, or its certificate, turns us away: the address must be mended."""
    words = str(error.orig).lower()
    return any(sign in words for sign in _REFUSING) or _NO_DATABASE.search(words) is not None


def _is_of_postgres(error: DBAPIError) -> bool:
    # psycopg gives no code to an error that comes from the connection and not from a statement.
    return isinstance(error, OperationalError) and hasattr(error.orig, "sqlstate")


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
