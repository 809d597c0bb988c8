"""The log of what was said in chats, and with it the queue of messages that wait (T-014)."""

from __future__ import annotations

from typing import Any

from sqlalchemy import ColumnElement, Subquery, and_, func, or_, select, update

from holdfast.domain.errors import ValidationFailed
from holdfast.domain.lifecycle import State
from holdfast.storage.chats.chat_session import LoggedMessage, Place
from holdfast.storage.database.engine import Db
from holdfast.storage.database.rows import find_row, insert_once, table
from holdfast.storage.database.tables import Run, SessionRow
from holdfast.storage.database.tables_library import ChatMessage

ROLES = ("user", "assistant")
BUSY = frozenset({State.RUNNING, State.QUEUED, State.PAUSED})
RUN_OVER = ("done", "failed", "cancelled")
_log, _runs, _sessions = table(ChatMessage), table(Run), table(SessionRow)


def save_message(db: Db, place: Place, line: LoggedMessage) -> bool:
    """Append one line; False when a line with this id is there already (T-015)."""
    if line.role not in ROLES:
        raise ValidationFailed("a chat's line is the user's or the assistant's")
    row = ChatMessage(operator_id=place.operator_id, connector=place.connector, **vars(line))
    return insert_once(db, ChatMessage, row.model_dump())


def get_messages(db: Db, place: Place, limit: int = 50, offset: int = 0) -> list[LoggedMessage]:
    """Lines by time, then id (T-016); dropped ones were never said."""
    rows = (
        select(_log)
        .where(*_at(place), _log.c.state != "dropped")
        .order_by(_log.c.created_at, _log.c.id)
        .limit(limit)
        .offset(offset)
    )
    return [_line(row) for row in db.connection().execute(rows)]


def find(db: Db, message_id: str) -> ChatMessage | None:
    """The line with this id, or None."""
    return find_row(db, ChatMessage, message_id)


def has_lines(db: Db, place: Place) -> bool:
    """Whether anything was ever said in the chat."""
    return (
        db.connection().execute(select(_log.c.id).where(*_at(place)).limit(1)).first() is not None
    )


def waiting(db: Db, place: Place, session_id: str | None = None) -> int:
    """How many of the chat's messages wait; with `session_id` those for that session."""
    count = select(func.count()).where(*_at(place), _log.c.state == "queued")
    if session_id is not None:
        count = count.where(_log.c.session_id == session_id)
    return int(db.connection().execute(count).scalar_one())


def drop_waiting(db: Db, place: Place) -> None:
    """Messages that still wait in this chat are never sent."""
    queued = update(_log).where(*_at(place), _log.c.state == "queued")
    db.connection().execute(queued.values(state="dropped"))


def move_waiting(db: Db, place: Place, *, source: str, target: str) -> None:
    """Messages that wait for the session `source` wait for `target` from now on."""
    queued = update(_log).where(*_at(place), _log.c.state == "queued", _log.c.session_id == source)
    db.connection().execute(queued.values(session_id=target))


def mark(db: Db, message_id: str, state: str, *, was: str, **columns: Any) -> bool:
    """The line is now in this state; False when it was not in the state `was` any more."""
    changed = update(_log).where(_log.c.id == message_id, _log.c.state == was)
    return db.connection().execute(changed.values(state=state, **columns)).rowcount > 0


def is_open(db: Db) -> bool:
    """Whether any line of any operator waits or is being answered."""
    return db.connection().execute(select(_log.c.id).where(_open()).limit(1)).first() is not None


def to_settle(db: Db, *, limit: int) -> list[ChatMessage]:
    """Sent lines whose run is over, or that no run has taken; oldest first."""
    run = and_(_runs.c.session_id == _log.c.session_id, _runs.c.operator_message == _log.c.id)
    rows = (
        select(_log)
        .outerjoin(_runs, run)
        .where(_log.c.state == "sent", or_(_runs.c.id.is_(None), _runs.c.state.in_(RUN_OVER)))
    )
    return _oldest(db, rows, limit)


def to_send(db: Db, *, limit: int) -> list[ChatMessage]:
    """The first waiting line of each session that could take it now; oldest first."""
    turns = _turns()
    rows = (
        select(_log)
        .join(turns, turns.c.id == _log.c.id)
        .outerjoin(_sessions, _sessions.c.id == _log.c.session_id)
        .where(_log.c.state == "queued", turns.c.turn == 1)
        .where(or_(_sessions.c.id.is_(None), _sessions.c.state.not_in(BUSY)))
    )
    return _oldest(db, rows, limit)


def is_next(db: Db, line: ChatMessage) -> bool:
    """Whether no earlier line of the same session waits or is being answered."""
    turns = _turns(_log.c.session_id == line.session_id)
    row = select(turns.c.id).where(turns.c.id == line.id, turns.c.turn == 1)
    return db.connection().execute(row).first() is not None


def _turns(*only: ColumnElement[bool]) -> Subquery:
    """Lines that wait or are being answered, numbered within their session."""
    order = (_log.c.created_at, _log.c.id)
    turn = func.row_number().over(partition_by=_log.c.session_id, order_by=order)
    return select(_log.c.id, turn.label("turn")).where(_open(), *only).subquery()


def _open() -> ColumnElement[bool]:
    return _log.c.state.in_(("queued", "sent"))


def _oldest(db: Db, rows: Any, limit: int) -> list[ChatMessage]:
    ordered = rows.order_by(_log.c.created_at, _log.c.id).limit(limit)
    return [ChatMessage(**row._mapping) for row in db.connection().execute(ordered)]


def _at(place: Place) -> tuple[ColumnElement[bool], ...]:
    return (
        _log.c.operator_id == place.operator_id,
        _log.c.connector == place.connector,
        _log.c.user_id == place.user_id,
        _log.c.chat_id == place.chat_id,
    )


def _line(row: Any) -> LoggedMessage:
    names = LoggedMessage.__dataclass_fields__
    return LoggedMessage(**{name: getattr(row, name) for name in names})
