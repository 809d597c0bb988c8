"""Messages that wait in a busy session, what a session needs from a person, its last run."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0012"
down_revision = "0011"

# Not where a row names a missing one: Postgres checks the keys of a row that is changed twice in
# one transaction, as in an upgrade from before revision 7, although the keys stay as they are.
_LAST_RUN = """
    UPDATE sessions SET last_run_id = (
        SELECT runs.id FROM runs
        WHERE runs.session_id = sessions.id
          AND runs.completed_at IS NOT NULL AND runs.operator_message IS NOT NULL
        ORDER BY runs.created_at DESC, runs.id DESC LIMIT 1
    )
    WHERE project_id IN (SELECT id FROM projects)
      AND (parent_session_id IS NULL OR parent_session_id IN (SELECT id FROM sessions AS others))
      AND (bound_issue IS NULL OR bound_issue IN (SELECT id FROM issues))
"""


def upgrade() -> None:
    """Sessions of old need nothing from anybody until they move."""
    op.create_table(
        "waiting_messages",
        sa.Column("id", sa.String(), primary_key=True),
        sa.Column("session_id", sa.String(), nullable=False),
        sa.Column("position", sa.Integer(), nullable=False),
        sa.Column("when_busy", sa.String(), nullable=False),
        sa.Column("content", sa.Text(), nullable=False),
        sa.Column("model_override", sa.String(), nullable=True),
        sa.Column("user_id", sa.String(), nullable=False),
        sa.Column("run_id", sa.String(), nullable=True),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
    )
    op.create_index("ix_waiting_messages_session_id", "waiting_messages", ["session_id"])
    op.add_column(
        "sessions", sa.Column("waiting", sa.Integer(), nullable=False, server_default="0")
    )
    for name in ("attention_kind", "failed_run_id", "last_run_id"):
        op.add_column("sessions", sa.Column(name, sa.String(), nullable=True))
    for name in ("attention", "trouble"):
        op.add_column("sessions", sa.Column(name, sa.Text(), nullable=True))
    op.create_index("ix_sessions_attention", "sessions", ["attention_kind", "created_by"])
    op.execute(_LAST_RUN)


def downgrade() -> None:
    """Drop the table and columns."""
    op.drop_index("ix_sessions_attention", "sessions")
    for name in ("trouble", "attention", "last_run_id", "failed_run_id"):
        op.drop_column("sessions", name)
    op.drop_column("sessions", "attention_kind")
    op.drop_column("sessions", "waiting")
    op.drop_table("waiting_messages")
