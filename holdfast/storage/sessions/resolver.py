"""One resolver for every name of a session: id, unique id prefix, alias, lineage, title."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from sqlalchemy import select

from holdfast.domain.errors import NotFound
from holdfast.storage.database.engine import Db
from holdfast.storage.database.rows import table
from holdfast.storage.database.tables import SessionRow
from holdfast.storage.sessions import aliases, titles

_sessions = table(SessionRow)
# Ids of the same minute share more than this, so shorter prefixes are rarely meant as one.
PREFIX_CHARS_MIN = 4
MISSING = "Session not found."


@dataclass(frozen=True)
class Resolved:
    """The session that a name means, and how."""

    session: SessionRow
    matched_by: str  # id | prefix | alias | title | lineage


def resolve(db: Db, operator_id: str, name: str) -> Resolved:
    """The operator's session that `name` means, or NotFound.

    The order is fixed. A title means the newest of its lineage (H-029); in double quotes it means
    the session that has exactly this title.
    """
    for matched_by, look_up in _WAYS:
        session_id = look_up(db, operator_id, name)
        session = None if session_id is None else _own(db, operator_id, session_id)
        if session is not None:
            return Resolved(session, matched_by)
    raise NotFound(MISSING)


def _own(db: Db, operator_id: str, session_id: str) -> SessionRow | None:
    mine = select(_sessions).where(
        _sessions.c.id == session_id,
        _sessions.c.created_by == operator_id,
        _sessions.c.purged.is_(False),
    )
    row = db.connection().execute(mine).first()
    return None if row is None else SessionRow(**row._mapping)


def _by_prefix(db: Db, operator_id: str, name: str) -> str | None:
    """The only id that begins so; two are as good as none."""
    if len(name) < PREFIX_CHARS_MIN or not name.isascii() or not name.isalnum():
        return None
    start = name.upper()
    mine = select(_sessions.c.id).where(
        _sessions.c.created_by == operator_id,
        _sessions.c.purged.is_(False),
        _sessions.c.id.startswith(start),
    )
    found = [row[0] for row in db.connection().execute(mine.limit(2))]
    return found[0] if len(found) == 1 else None


def _by_quoted_title(db: Db, operator_id: str, name: str) -> str | None:
    quoted = len(name) > 2 and name[0] == name[-1] == '"'
    return titles.holder(db, operator_id, name[1:-1]) if quoted else None


_WAYS: tuple[tuple[str, Callable[[Db, str, str], str | None]], ...] = (
    ("id", lambda _db, _operator_id, name: name),
    ("id", lambda _db, _operator_id, name: name.upper()),
    ("prefix", _by_prefix),
    ("alias", aliases.find),
    ("title", _by_quoted_title),
    ("lineage", titles.latest_numbered),
    ("title", titles.holder),
)
