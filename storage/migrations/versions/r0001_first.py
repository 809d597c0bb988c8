"""The first tables."""

from __future__ import annotations

from alembic import op
from sqlmodel import SQLModel

import storage.tables
import storage.tables_history
import storage.tables_library  # noqa: F401 - fills the metadata

revision = "0001"
down_revision = None


def upgrade() -> None:
    """Create every table."""
    SQLModel.metadata.create_all(op.get_bind())


def downgrade() -> None:
    """Drop every table."""
    SQLModel.metadata.drop_all(op.get_bind())
