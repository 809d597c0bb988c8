"""Tables of approvals: calls that an operator is asked about, and remembered answers."""

from __future__ import annotations

from typing import Any

from sqlalchemy import BigInteger, Index
from sqlmodel import Field, SQLModel

from holdfast.storage.database.columns import json_column, text_column


def _big(*, default: int | None = 0) -> Any:
    return Field(default=default, sa_type=BigInteger)


class Approval(SQLModel, table=True):
    """A tool call that waits for an operator's word, or did."""

    __tablename__ = "approvals"
    __table_args__ = (Index("ix_approvals_session_state", "session_id", "state", "asked_at"),)
    id: str = Field(primary_key=True)
    session_id: str
    run_id: str = Field(index=True)
    tool_call_id: str = Field(unique=True)
    invocation_id: str | None = None
    agent_path: str = "primary"
    source: str = "native"  # native | acp | mcp
    tool: str
    kind: str
    title: str = Field(default="", sa_column=text_column(nullable=False))
    input: dict[str, Any] = Field(default_factory=dict, sa_column=json_column(nullable=False))
    diff: str | None = Field(default=None, sa_column=text_column())
    paths: list[str] = Field(default_factory=list, sa_column=json_column(nullable=False))
    command: str | None = Field(default=None, sa_column=text_column())
    cwd: str = ""
    reason: str = Field(default="", sa_column=text_column(nullable=False))
    uncaged: bool = False  # it would run without a cage, since the machine can build none
    asked_at: int = _big()
    expires_at: int | None = _big(default=None)
    state: str = "pending"  # pending | allowed | denied | expired | withdrawn
    decided_by: str | None = None
    decided_at: int | None = _big(default=None)
    note: str | None = Field(default=None, sa_column=text_column())
    rule_id: str | None = None


class PermissionRow(SQLModel, table=True):
    """An answer that holds for later calls of a session, or of a project."""

    __tablename__ = "permissions"
    __table_args__ = (
        Index("ix_permissions_session", "session_id"),
        Index("ix_permissions_project", "project_id"),
    )
    id: str = Field(primary_key=True)
    scope: str  # session | project
    operator_id: str
    session_id: str  # where it was made; with the scope `session`, where it holds
    project_id: str
    tool: str
    pattern: str | None = Field(default=None, sa_column=text_column())
    effect: str  # allow | deny
    made_from: str | None = None  # the approval
    created_at: int = _big()
