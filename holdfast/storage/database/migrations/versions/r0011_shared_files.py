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
    op.create_table(
        "memory_indexes",
        sa.Column("project_id", sa.String(), primary_key=True),
        sa.Column("host_id", sa.String(), nullable=False),
        sa.Column("generation", sa.BigInteger(), nullable=False),
        sa.Column("size", sa.BigInteger(), nullable=False),
        sa.Column("note", sa.String(), nullable=False),
    )
    op.create_table(
        "memory_index_parts",
        sa.Column("project_id", sa.String(), primary_key=True),
        sa.Column("number", sa.Integer(), primary_key=True),
        sa.Column("blob", sa.String(), nullable=False),
    )
    op.create_index("ix_memory_index_parts_blob", "memory_index_parts", ["blob"])


def downgrade() -> None:
    """Drop the tables."""
    op.drop_table("memory_index_parts")
    op.drop_table("memory_indexes")
    op.drop_table("tree_bundles")
