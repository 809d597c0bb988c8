"""Wakes listeners when a session has new events or frames."""

from __future__ import annotations

from sqlalchemy import text

from storage.engine import Db

CHANNEL = "holdfast"


def notify(db: Db, session_id: str) -> None:
    """Tell listeners at commit; on SQLite they watch the file itself."""
    if db.get_bind().dialect.name == "postgresql":
        db.connection().execute(text("SELECT pg_notify(:c, :s)"), {"c": CHANNEL, "s": session_id})
