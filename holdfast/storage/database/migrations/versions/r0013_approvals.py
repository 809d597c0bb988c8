"""Approvals, remembered permissions, sessions that wait without a slot, and the stuck guard."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0013"
down_revision = "0012"


def upgrade() -> None:
    """Nobody was asked before, so the tables begin empty."""
    op.create_table(
        "approvals",
        sa.Column("id", sa.String(), primary_key=True),
        sa.Column("session_id", sa.String(), nullable=False),
        sa.Column("run_id", sa.String(), nullable=False),
        sa.Column("tool_call_id", sa.String(), nullable=False, unique=True),
        sa.Column("invocation_id", sa.String(), nullable=True),
        sa.Column("agent_path", sa.String(), nullable=False),
        sa.Column("source", sa.String(), nullable=False),
        sa.Column("tool", sa.String(), nullable=False),
        sa.Column("kind", sa.String(), nullable=False),
        sa.Column("title", sa.Text(), nullable=False),
        sa.Column("input", sa.Text(), nullable=False),
        sa.Column("diff", sa.Text(), nullable=True),
        sa.Column("paths", sa.Text(), nullable=False),
        sa.Column("command", sa.Text(), nullable=True),
        sa.Column("cwd", sa.String(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("uncaged", sa.Boolean(), nullable=False),
        sa.Column("asked_at", sa.BigInteger(), nullable=False),
        sa.Column("expires_at", sa.BigInteger(), nullable=True),
        sa.Column("state", sa.String(), nullable=False),
        sa.Column("decided_by", sa.String(), nullable=True),
        sa.Column("decided_at", sa.BigInteger(), nullable=True),
        sa.Column("note", sa.Text(), nullable=True),
        sa.Column("rule_id", sa.String(), nullable=True),
    )
    op.create_index("ix_approvals_session_state", "approvals", ["session_id", "state", "asked_at"])
    op.create_index("ix_approvals_run_id", "approvals", ["run_id"])
    op.create_table(
        "permissions",
        sa.Column("id", sa.String(), primary_key=True),
        sa.Column("scope", sa.String(), nullable=False),
        sa.Column("operator_id", sa.String(), nullable=False),
        sa.Column("session_id", sa.String(), nullable=False),
        sa.Column("project_id", sa.String(), nullable=False),
        sa.Column("tool", sa.String(), nullable=False),
        sa.Column("pattern", sa.Text(), nullable=True),
        sa.Column("effect", sa.String(), nullable=False),
        sa.Column("made_from", sa.String(), nullable=True),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
    )
    op.create_index("ix_permissions_session", "permissions", ["session_id"])
    op.create_index("ix_permissions_project", "permissions", ["project_id"])
    for name, default in (("without_slot", sa.false()), ("stuck_guard", sa.true())):
        op.add_column(
            "sessions", sa.Column(name, sa.Boolean(), nullable=False, server_default=default)
        )


def downgrade() -> None:
    """Drop the tables and columns."""
    op.drop_column("sessions", "stuck_guard")
    op.drop_column("sessions", "without_slot")
    op.drop_table("permissions")
    op.drop_table("approvals")
