"""Wrong tokens are counted in the database, for all APIs together."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"


def upgrade() -> None:
    """Add the table of counters."""
    op.create_table(
        "failed_logins",
        sa.Column("address", sa.String(), primary_key=True),
        sa.Column("slot", sa.Integer(), primary_key=True),
        sa.Column("count", sa.Integer(), nullable=False),
    )


def downgrade() -> None:
    """Drop the table."""
    op.drop_table("failed_logins")
