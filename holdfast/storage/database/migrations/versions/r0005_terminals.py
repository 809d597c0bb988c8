"""When an operator's client was first shown a terminal; what a project file means, by hash."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"


def upgrade() -> None:
    """Terminals of old have no time: their next attach counts as the first."""
    op.add_column("ptys", sa.Column("attached_at", sa.BigInteger(), nullable=True))
    op.add_column("projects", sa.Column("dsl_meaning", sa.String(), nullable=True))


def downgrade() -> None:
    """Drop the columns."""
    op.drop_column("projects", "dsl_meaning")
    op.drop_column("ptys", "attached_at")
