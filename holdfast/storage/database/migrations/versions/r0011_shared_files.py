"""Snapshots of files and indexes of memories, in the blob store for every machine."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"


def upgrade() -> None:
    """What was saved before stays on the machine that saved it."""
    op.create_table(
        "tree_bundles",
        sa.Column("session_id", sa.String(), primary_key=True),
        sa.Column("tree", sa.String(), primary_key=True),
        sa.Column("basis", sa.String(), nullable=True),
        sa.Column("depth", sa.Integer(), nullable=False),
        sa.Column("blob", sa.String(), nullable=False),
        sa.Column("size", sa.BigInteger(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
    )
    op.create_index("ix_tree_bundles_blob", "tree_bundles", ["blob"])


def downgrade() -> None:
    """Drop the table."""
    op.drop_table("tree_bundles")
