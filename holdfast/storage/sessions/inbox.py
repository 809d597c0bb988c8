"""Staged messages: content waits here until its session takes it."""

from __future__ import annotations

from sqlalchemy import bindparam, delete

from holdfast.domain.clock import now_ms
from holdfast.storage.database.engine import Db
from holdfast.storage.database.rows import KEY, find_row, insert_once, table
from holdfast.storage.database.tables import InboxMessage

_inbox = table(InboxMessage)
KEEP_MS = 60 * 60 * 1000
_TAKE = delete(_inbox).where(_inbox.c.id == bindparam(KEY))


def stage(
    db: Db, *, message_id: str, session_id: str, content: str, model_override: str | None
) -> None:
    """Keep content for a message that its session has yet to take."""
    insert_once(
        db,
        InboxMessage,
        {
            "id": message_id,
            "session_id": session_id,
            "content": content,
            "model_override": model_override,
            "created_at": now_ms(),
        },
    )


def stage_given(db: Db, session_id: str, message_id: str, content: str | None) -> None:
    """Stage words that came by a signal; None: they were staged before the command was sent."""
    if content is not None:
        stage(
            db,
            message_id=message_id,
            session_id=session_id,
            content=content,
            model_override=None,
        )


def find(db: Db, message_id: str) -> InboxMessage | None:
    """The staged message, if nobody took it yet."""
    return find_row(db, InboxMessage, message_id)


def take(db: Db, message_id: str) -> None:
    """The message lives elsewhere now."""
    db.connection().execute(_TAKE, {KEY: message_id})


def sweep(db: Db) -> int:
    """Remove what nobody was promised: staged over an hour ago and never taken."""
    old = delete(_inbox).where(_inbox.c.created_at < now_ms() - KEEP_MS)
    return db.connection().execute(old).rowcount
