"""Tables of the library: aliases, issues, todos, chats."""

from __future__ import annotations

from typing import Any

from sqlalchemy import BigInteger, Index, UniqueConstraint
from sqlmodel import Field, SQLModel

from holdfast.storage.database.columns import text_column


def _big(*, default: int | None = 0) -> Any:
    return Field(default=default, sa_type=BigInteger)


class Alias(SQLModel, table=True):
    """A name that an operator may move from session to session."""

    __tablename__ = "aliases"
    operator_id: str = Field(primary_key=True)
    name: str = Field(primary_key=True)
    session_id: str
    created_at: int = _big()


class Issue(SQLModel, table=True):
    """Work to be done in a project, numbered from 1."""

    __tablename__ = "issues"
    __table_args__ = (UniqueConstraint("project_id", "number"),)
    id: str = Field(primary_key=True)
    project_id: str
    number: int
    created_by: str
    title: str
    body: str = Field(default="", sa_column=text_column(nullable=False))
    original_body: str | None = Field(default=None, sa_column=text_column())
    status: str = "open"  # open | in_progress | blocked | resolved | closed
    assignment: str | None = None
    created_at: int = _big()
    updated_at: int = _big()


class IssueComment(SQLModel, table=True):
    """One append-only remark on an issue."""

    __tablename__ = "issue_comments"
    id: str = Field(primary_key=True)
    issue_id: str = Field(index=True)
    author: str
    session_id: str | None = None
    body: str = Field(sa_column=text_column(nullable=False))
    created_at: int = _big()


class Todo(SQLModel, table=True):
    """One task of an issue, addressed by its text."""

    __tablename__ = "todos"
    __table_args__ = (UniqueConstraint("issue_id", "text"),)
    id: str = Field(primary_key=True)
    issue_id: str = Field(index=True)
    position: int
    text: str
    status: str = "pending"  # pending | in_progress | done | abandoned
    notes: str = Field(default="", sa_column=text_column(nullable=False))
    created_at: int = _big()
    updated_at: int = _big()


class Chat(SQLModel, table=True):
    """A chat of a connector's user, and the session behind it."""

    __tablename__ = "chats"
    __table_args__ = (
        Index("ix_chats_key", "operator_id", "connector", "user_id", "chat_id", unique=True),
        Index("ix_chats_session", "session_id"),
    )
    id: str = Field(primary_key=True)
    operator_id: str
    connector: str = "api"
    user_id: str
    chat_id: str
    session_id: str
    working_directory: str = ""
    claude_session_id: str | None = None
    created_at: int = _big()
    last_used: int = _big()
    total_cost: float = 0.0
    message_count: int = 0
    mode: str = "plan"
    is_active: bool = True


class ChatMessage(SQLModel, table=True):
    """One line of a chat's own log, append-only."""

    __tablename__ = "chat_messages"
    __table_args__ = (
        Index("ix_chat_messages_key", "operator_id", "user_id", "chat_id", "created_at"),
        Index("ix_chat_messages_state", "state", "created_at"),
    )
    id: str = Field(primary_key=True)
    operator_id: str
    connector: str = "api"
    user_id: str
    chat_id: str
    session_id: str | None = None
    role: str  # user | assistant
    content: str = Field(sa_column=text_column(nullable=False))
    cost: float | None = None
    duration_ms: int | None = _big(default=None)
    state: str = "done"  # queued | sent | done | dropped
    created_at: int = _big()
