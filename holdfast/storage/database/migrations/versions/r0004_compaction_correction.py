"""How far the estimate of tokens was off when a compaction was made."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    """Add the column; records from before have none."""
    op.add_column("compactions", sa.Column("correction", sa.Float(), nullable=True))


def downgrade() -> None:
    """Drop the column."""
    op.drop_column("compactions", "correction")
