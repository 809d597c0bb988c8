"""Chats in the database: one row for each user and chat, and the log of what was said."""

from __future__ import annotations

import hashlib
import json
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import ColumnElement, func, select, update

from holdfast.domain.clock import now_ms
from holdfast.domain.errors import ValidationFailed
from holdfast.domain.ids import new_id
from holdfast.storage.chats.chat_session import ChatSession, LoggedMessage
from holdfast.storage.database.engine import Db
from holdfast.storage.database.rows import insert_once, table
from holdfast.storage.database.tables_library import Chat, ChatMessage

CONNECTOR = "api"
ROLES = ("user", "assistant")
_chats, _log = table(Chat), table(ChatMessage)


def save(db: Db, operator_id: str, connector: str, session: ChatSession) -> None:
    """Store the session in the place of the one before (T-013)."""
    values = _values(session)
    moved = update(_chats).where(*_named(operator_id, connector, *session.key)).values(values)
    if db.connection().execute(moved).rowcount == 0:
        keys = {"id": new_id(), "operator_id": operator_id, "connector": connector}
        keys |= {"user_id": session.user_id, "chat_id": session.chat_id}
        if not insert_once(db, Chat, {**keys, **values}):
            db.connection().execute(moved)


def load(db: Db, operator_id: str, connector: str, user_id: str, chat_id: str) -> Chat | None:
    """The active chat, or None."""
    row = select(_chats).where(
        *_named(operator_id, connector, user_id, chat_id), _chats.c.is_active.is_(True)
    )
    found = db.connection().execute(row).first()
    return None if found is None else Chat(**found._mapping)


def lock(db: Db, *place: str) -> None:
    """Nobody else makes this chat while the transaction lasts; SQLite has one writer anyway."""
    if db.get_bind().dialect.name == "postgresql":
        digest = hashlib.sha256(json.dumps(["chat", *place]).encode()).digest()
        key = int.from_bytes(digest[:8], "big", signed=True)
        db.connection().execute(select(func.pg_advisory_xact_lock(key)))


def known(db: Db, operator_id: str, connector: str, user_id: str, chat_id: str) -> bool:
    """Whether there is or ever was such a chat."""
    row = select(_chats.c.id).where(*_named(operator_id, connector, user_id, chat_id))
    return db.connection().execute(row).first() is not None


def deactivate(db: Db, operator_id: str, connector: str, user_id: str, chat_id: str) -> bool:
    """Soft delete (T-012): the row stays; messages that still wait are dropped."""
    gone = db.connection().execute(
        update(_chats)
        .where(*_named(operator_id, connector, user_id, chat_id), _chats.c.is_active.is_(True))
        .values(is_active=False)
    )
    db.connection().execute(
        update(_log)
        .where(*_said_in(operator_id, connector, user_id, chat_id), _log.c.state == "queued")
        .values(state="dropped")
    )
    return gone.rowcount > 0


def of_operator(db: Db, operator_id: str, *, limit: int) -> list[Chat]:
    """The operator's active chats, the one used last first."""
    rows = select(_chats).where(_chats.c.operator_id == operator_id, _chats.c.is_active.is_(True))
    rows = rows.order_by(_chats.c.last_used.desc(), _chats.c.id).limit(limit)
    return [Chat(**row._mapping) for row in db.connection().execute(rows)]


def log(db: Db, operator_id: str, connector: str, line: LoggedMessage) -> bool:
    """Append one line; the same id twice is one line."""
    if line.role not in ROLES:
        raise ValidationFailed("a chat's line is the user's or the assistant's")
    row = ChatMessage(operator_id=operator_id, connector=connector, **vars(line))
    return insert_once(db, ChatMessage, row.model_dump())


def messages(
    db: Db,
    operator_id: str,
    connector: str,
    user_id: str,
    chat_id: str,
    *,
    limit: int = 50,
    offset: int = 0,
) -> list[LoggedMessage]:
    """Lines by time, then id (T-016); dropped ones were never said."""
    rows = (
        select(_log)
        .where(*_said_in(operator_id, connector, user_id, chat_id), _log.c.state != "dropped")
        .order_by(_log.c.created_at, _log.c.id)
        .limit(limit)
        .offset(offset)
    )
    return [_line(row) for row in db.connection().execute(rows)]


def waiting(db: Db, operator_id: str, connector: str, user_id: str, chat_id: str) -> int:
    """How many of the user's messages still wait or are being answered."""
    count = select(func.count()).where(
        *_said_in(operator_id, connector, user_id, chat_id), _log.c.state == "queued"
    )
    return int(db.connection().execute(count).scalar_one())


def in_state(db: Db, state: str, *, limit: int) -> list[ChatMessage]:
    """Lines of all operators in this state, oldest first."""
    rows = select(_log).where(_log.c.state == state).order_by(_log.c.created_at, _log.c.id)
    return [ChatMessage(**row._mapping) for row in db.connection().execute(rows.limit(limit))]


def mark(db: Db, message_id: str, state: str, *, was: str | None = None) -> bool:
    """The line is now in this state; False when it was not in the state `was` any more."""
    changed = update(_log).where(_log.c.id == message_id)
    if was is not None:
        changed = changed.where(_log.c.state == was)
    return db.connection().execute(changed.values(state=state)).rowcount > 0


def add_result(db: Db, session_id: str, *, cost: float) -> None:
    """One more exchange in the chat that this session answers (T-006)."""
    db.connection().execute(
        update(_chats)
        .where(_chats.c.session_id == session_id)
        .values(
            message_count=_chats.c.message_count + 1,
            total_cost=_chats.c.total_cost + cost,
            last_used=now_ms(),
        )
    )


def as_session(chat: Chat) -> ChatSession:
    """The row as connectors know it."""
    return ChatSession(
        session_id=chat.session_id,
        user_id=chat.user_id,
        chat_id=chat.chat_id,
        working_directory=chat.working_directory,
        claude_session_id=chat.claude_session_id,
        created_at=_time(chat.created_at),
        last_used=_time(chat.last_used),
        total_cost=chat.total_cost,
        message_count=chat.message_count,
        mode=chat.mode,
        is_active=chat.is_active,
    )


def _values(session: ChatSession) -> dict[str, Any]:
    return {
        "session_id": session.session_id,
        "working_directory": session.working_directory,
        "claude_session_id": session.claude_session_id,
        "created_at": _ms(session.created_at),
        "last_used": _ms(session.last_used),
        "total_cost": session.total_cost,
        "message_count": session.message_count,
        "mode": session.mode,
        "is_active": session.is_active,
    }


def _named(
    operator_id: str, connector: str, user_id: str, chat_id: str
) -> tuple[ColumnElement[bool], ...]:
    return (
        _chats.c.operator_id == operator_id,
        _chats.c.connector == connector,
        _chats.c.user_id == user_id,
        _chats.c.chat_id == chat_id,
    )


def _said_in(
    operator_id: str, connector: str, user_id: str, chat_id: str
) -> tuple[ColumnElement[bool], ...]:
    return (
        _log.c.operator_id == operator_id,
        _log.c.connector == connector,
        _log.c.user_id == user_id,
        _log.c.chat_id == chat_id,
    )


def _line(row: Any) -> LoggedMessage:
    names = LoggedMessage.__dataclass_fields__
    return LoggedMessage(**{name: getattr(row, name) for name in names})


def _ms(at: datetime) -> int:
    return int(at.timestamp() * 1000)


def _time(at: int) -> datetime:
    return datetime.fromtimestamp(at / 1000, UTC)
