"""Titles: unique per operator, made from the first exchange when nobody gave one."""

from __future__ import annotations

from sqlalchemy import select

from domain.errors import Conflict, ValidationFailed
from storage import sessions
from storage.engine import Db
from storage.rows import change, table
from storage.tables import SessionRow

_sessions = table(SessionRow)
TITLE_CHARS = 60


def auto_title(db: Db, session_id: str) -> str | None:
    """Give a session without a title one from its first message; never over a user's."""
    session = sessions.get(db, session_id)
    if session.title is not None or not session.preview:
        return session.title
    base = session.preview[:TITLE_CHARS].strip()
    title, number = base, 2
    while _taken(db, session.created_by, title):
        title, number = f"{base} #{number}", number + 1
    change(db, SessionRow, session_id, title=title, title_source="auto")
    return title


def set_title(db: Db, session_id: str, title: str | None) -> None:
    """Give the session this title, or none; Conflict when another of the operator's has it."""
    session = sessions.get(db, session_id)
    words = None if title is None else " ".join(title.split())
    if words == "":
        raise ValidationFailed("a title has at least one visible character")
    if words is not None and words != session.title and _taken(db, session.created_by, words):
        raise Conflict("another of your sessions has this title", {"title": words})
    source = None if words is None else "user"
    change(db, SessionRow, session_id, title=words, title_source=source)


def _taken(db: Db, operator_id: str, title: str) -> bool:
    same = select(_sessions.c.id).where(
        _sessions.c.created_by == operator_id, _sessions.c.title == title
    )
    return db.connection().execute(same.limit(1)).first() is not None
