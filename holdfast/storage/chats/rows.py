"""Chats in the database: one row for each user and chat (T-013)."""

from __future__ import annotations

import hashlib
import json
from dataclasses import astuple
from typing import Any

from sqlalchemy import ColumnElement, func, select, update

from holdfast.storage.chats.chat_session import ChatSession, Place, from_ms, to_ms
from holdfast.storage.database.engine import Db
from holdfast.storage.database.rows import insert_once, table
from holdfast.storage.database.tables_library import Chat

_chats = table(Chat)
_TIMES = ("created_at", "last_used")
_FIELDS = tuple(ChatSession.__dataclass_fields__)


def save(db: Db, place: Place, session: ChatSession) -> None:
    """Store the session in the place of the one before, whose id it takes over."""
    known = db.connection().execute(select(_chats.c.id).where(*_at(place))).scalar()
    session.id = known or session.id
    values = _values(session)
    if known is not None or not insert_once(
        db, Chat, {"operator_id": place.operator_id, "connector": place.connector, **values}
    ):
        db.connection().execute(update(_chats).where(*_at(place)).values(values))


def load(db: Db, place: Place) -> ChatSession | None:
    """The active session, or None."""
    row = select(_chats).where(*_at(place), _chats.c.is_active.is_(True))
    found = db.connection().execute(row).first()
    return None if found is None else _session(found)


def lock(db: Db, place: Place) -> None:
    """Nobody else changes this chat while the transaction lasts; SQLite has one writer anyway."""
    if db.get_bind().dialect.name == "postgresql":
        digest = hashlib.sha256(json.dumps(["chat", *astuple(place)]).encode()).digest()
        key = int.from_bytes(digest[:8], "big", signed=True)
        db.connection().execute(select(func.pg_advisory_xact_lock(key)))


def known(db: Db, place: Place) -> bool:
    """Whether there is or ever was such a chat."""
    return db.connection().execute(select(_chats.c.id).where(*_at(place))).first() is not None


def deactivate(db: Db, place: Place) -> None:
    """Soft delete (T-012): the row stays."""
    db.connection().execute(update(_chats).where(*_at(place)).values(is_active=False))


def of_operator(db: Db, operator_id: str, *, limit: int) -> list[ChatSession]:
    """The operator's active chats, the one used last first."""
    rows = select(_chats).where(_chats.c.operator_id == operator_id, _chats.c.is_active.is_(True))
    rows = rows.order_by(_chats.c.last_used.desc(), _chats.c.id).limit(limit)
    return [_session(row) for row in db.connection().execute(rows)]


def _at(place: Place) -> tuple[ColumnElement[bool], ...]:
    return (
        _chats.c.operator_id == place.operator_id,
        _chats.c.connector == place.connector,
        _chats.c.user_id == place.user_id,
        _chats.c.chat_id == place.chat_id,
    )


def _values(session: ChatSession) -> dict[str, Any]:
    return {**vars(session), **{name: to_ms(getattr(session, name)) for name in _TIMES}}


def _session(row: Any) -> ChatSession:
    values = {name: getattr(row, name) for name in _FIELDS}
    return ChatSession(**{**values, **{name: from_ms(values[name]) for name in _TIMES}})
