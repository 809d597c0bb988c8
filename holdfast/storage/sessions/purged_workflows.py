"""Workflows that outlive their purged sessions: noted with the purge, so no crash forgets one."""

from __future__ import annotations

from sqlalchemy import delete, select

from holdfast.domain.clock import now_ms
from holdfast.storage.database.engine import Db
from holdfast.storage.database.rows import insert_once, table
from holdfast.storage.database.tables_history import Meta
from holdfast.storage.sessions import sessions

_PREFIX = "purged:"
_meta = table(Meta)


def note(db: Db, session_id: str) -> None:
    """The session goes in this transaction; its workflow is still to be ended."""
    insert_once(db, Meta, {"key": f"{_PREFIX}{session_id}", "value": str(now_ms())})


def waiting(db: Db, *, limit: int) -> list[str]:
    """Sessions whose workflows are to be ended."""
    keys = select(_meta.c.key).where(_meta.c.key.startswith(_PREFIX, autoescape=True))
    found = db.connection().execute(keys.order_by(_meta.c.key).limit(limit))
    return [str(row[0]).removeprefix(_PREFIX) for row in found]


def drop(db: Db, session_id: str) -> None:
    """The workflow was ended, or the session is back."""
    db.connection().execute(delete(_meta).where(_meta.c.key == f"{_PREFIX}{session_id}"))


def is_gone(db: Db, session_id: str) -> bool:
    """Whether the session is still purged."""
    session = sessions.find(db, session_id)
    return session is None or session.purged
