"""Rows read and changed as the product itself never does."""

from __future__ import annotations

from typing import Any

from sqlalchemy import create_engine, text
from sqlalchemy.sql.expression import Executable
from sqlmodel import col, select

from holdfast.storage.database.engine import Db, Store
from holdfast.storage.database.sqlite_driver import dbapi_module
from holdfast.storage.database.tables import ToolCallRow
from holdfast.storage.database.tables_history import Blob, Derivation, Frame


def frames_of(db: Db, session_id: str) -> list[Frame]:
    """The session's frames, oldest first."""
    mine = select(Frame).where(Frame.session_id == session_id)
    return list(db.exec(mine.order_by(col(Frame.seq))))


def tool_calls_of(db: Db, run_id: str) -> list[ToolCallRow]:
    """The run's tool calls in the order they were asked for."""
    order = (ToolCallRow.created_at, ToolCallRow.message_id, ToolCallRow.position)
    mine = select(ToolCallRow).where(ToolCallRow.run_id == run_id)
    return list(db.exec(mine.order_by(*map(col, order))))


def derivation_of(db: Db, session_id: str) -> Derivation | None:
    """The edge to the session that this one was forked from, or None."""
    return db.exec(select(Derivation).where(Derivation.target_session == session_id)).first()


def blob_row(db: Db, blob_id: str) -> Blob | None:
    """The committed fact about a blob, or None."""
    return db.get(Blob, blob_id)


def execute_unchecked(store: Store, *statements: Executable | str) -> None:
    """Run the statements in one transaction in which no foreign key is checked."""
    engine: Any = store.writer
    if store.is_sqlite:
        # A connection of SQLite checks no keys until it is told to.
        engine = create_engine(store.url, module=dbapi_module())
    with engine.begin() as connection:
        if not store.is_sqlite:
            connection.execute(text("SET LOCAL session_replication_role = replica"))
        for statement in statements:
            connection.execute(text(statement) if isinstance(statement, str) else statement)
    if store.is_sqlite:
        engine.dispose()
