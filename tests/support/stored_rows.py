"""Rows read and changed as the product itself never does."""

from __future__ import annotations

from typing import Any

from sqlalchemy import create_engine, text
from sqlalchemy.sql.expression import Executable
from sqlmodel import col, select

from holdfast.storage.database.engine import Db, Store
from holdfast.storage.database.rows import change, insert_once
from holdfast.storage.database.sqlite_driver import dbapi_module
from holdfast.storage.database.tables import SessionRow, ToolCallRow
from holdfast.storage.database.tables_history import (
    Blob,
    Checkpoint,
    Derivation,
    Frame,
    PromptEdit,
    PtyTranscript,
    TreeBundle,
)
from holdfast.storage.database.tables_library import Issue


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


def add_named_rows(
    db: Db, made: Checkpoint, project_id: str, run_id: str, *, transcript: str
) -> None:
    """An edit at the checkpoint and a bundle of its files, a transcript of the run, and an issue
    bound to the session.
    """
    edit = PromptEdit(
        id="edit",
        checkpoint_id=made.id,
        session_id=made.session_id,
        target="primary",
        old_hash="",
        new_hash="",
        new_content="",
    )
    insert_once(db, PromptEdit, edit.model_dump())
    seen = PtyTranscript(
        id="seen", run_id=run_id, session_id=made.session_id, pty_id="pty", transcript=transcript
    )
    insert_once(db, PtyTranscript, seen.model_dump())
    bundle = TreeBundle(session_id=made.session_id, tree="tree", blob=transcript)
    insert_once(db, TreeBundle, bundle.model_dump())
    issue = Issue(id="issue", project_id=project_id, number=1, created_by="o", title="t")
    insert_once(db, Issue, issue.model_dump())
    change(db, SessionRow, made.session_id, bound_issue="issue")
