"""The project file in force, the one that was trusted last, and what a session goes without."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"

COLUMNS = {
    "projects": {"file_hash": sa.String, "trusted_hash": sa.String, "loosens": sa.Text},
    "sessions": {"file_hash": sa.String, "withheld": sa.Text},
}


def upgrade() -> None:
    """Add the columns; a project that was loaded before keeps its file, which counts as trusted."""
    for place, columns in COLUMNS.items():
        for name, kind in columns.items():
            op.add_column(place, sa.Column(name, kind(), nullable=True))
    op.execute(
        "UPDATE projects SET file_hash = dsl_hash, trusted_hash = dsl_hash"
        " WHERE dsl_hash IN (SELECT hash FROM project_files)"
    )


def downgrade() -> None:
    """Drop the columns."""
    for place, names in COLUMNS.items():
        for name in names:
            op.drop_column(place, name)
