"""Hosts, the calls that were started on them, and which host a session and a terminal has."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"


def upgrade() -> None:
    """Sessions of old have no host: the first step that needs files gives them one."""
    op.create_table(
        "hosts",
        sa.Column("id", sa.String(), primary_key=True),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("epoch", sa.BigInteger(), nullable=False),
        sa.Column("address", sa.String(), nullable=False),
        sa.Column("task_queue", sa.String(), nullable=False),
        sa.Column("version", sa.String(), nullable=False),
        sa.Column("seen_at", sa.BigInteger(), nullable=False),
        sa.Column("draining", sa.Boolean(), nullable=False),
        sa.Column("leaving", sa.Boolean(), nullable=False),
        sa.Column("away_told", sa.Boolean(), nullable=False),
    )
    op.create_table(
        "executions",
        sa.Column("call_id", sa.String(), primary_key=True),
        sa.Column("session_id", sa.String(), nullable=False),
        sa.Column("host_id", sa.String(), nullable=False),
        sa.Column("epoch", sa.BigInteger(), nullable=False),
        sa.Column("state", sa.String(), nullable=False),
        sa.Column("claimed_at", sa.BigInteger(), nullable=False),
    )
    op.create_index("ix_executions_session_id", "executions", ["session_id"])
    op.add_column("sessions", sa.Column("host_id", sa.String(), nullable=True))
    op.create_index("ix_sessions_host_id", "sessions", ["host_id"])
    op.add_column("ptys", sa.Column("host_id", sa.String(), nullable=True))


def downgrade() -> None:
    """Drop the tables and columns."""
    op.drop_column("ptys", "host_id")
    op.drop_index("ix_sessions_host_id", "sessions")
    op.drop_column("sessions", "host_id")
    op.drop_table("executions")
    op.drop_table("hosts")
