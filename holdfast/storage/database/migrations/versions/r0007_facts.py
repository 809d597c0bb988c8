"""Cache ids, the answer of a leaf call, heads around an invocation, the snapshot of a head."""

from __future__ import annotations

import json
from typing import Any

import sqlalchemy as sa
from alembic import op

from holdfast.domain.canonical import canonical, sha256

revision = "0007"
down_revision = "0006"

COLUMNS = {
    "sessions": ("cache_id",),
    "heads": ("cache_id", "snapshot_ref"),
    "calls": ("response_ref",),
    "subagent_invocations": (
        "type",
        "callee_session",
        "caller_head_before",
        "caller_head_after",
        "callee_head_before",
        "callee_head_after",
    ),
}
_BATCH = 500
_heads = sa.table("heads", sa.column("id"), sa.column("checkpoint_id"), sa.column("snapshot_ref"))
_checkpoints = sa.table(
    "checkpoints",
    sa.column("id"),
    sa.column("message_seq"),
    sa.column("change"),
    sa.column("snapshot"),
    sa.column("prompts"),
)


def upgrade() -> None:
    """Add the columns, and fill those that every row must have."""
    for place, names in COLUMNS.items():
        for name in names:
            op.add_column(place, sa.Column(name, sa.String(), nullable=True))
    op.execute("UPDATE sessions SET cache_id = id")
    op.execute("UPDATE heads SET cache_id = session_id")
    op.execute("UPDATE subagent_invocations SET type = 'subagent', callee_session = session_id")
    _fill_snapshots(op.get_bind())


def downgrade() -> None:
    """Drop the columns."""
    for place, names in COLUMNS.items():
        for name in names:
            op.drop_column(place, name)


def _fill_snapshots(connection: sa.Connection) -> None:
    """The hash of its checkpoint's snapshot for every head that a checkpoint wrote."""
    last = ""
    while True:
        rows = connection.execute(
            sa.select(_heads.c.id, *(column for column in _checkpoints.c if column.name != "id"))
            .join_from(_heads, _checkpoints, _checkpoints.c.id == _heads.c.checkpoint_id)
            .where(_heads.c.id > last)
            .order_by(_heads.c.id)
            .limit(_BATCH)
        ).all()
        if not rows:
            return
        for row in rows:
            connection.execute(
                sa.update(_heads)
                .where(_heads.c.id == row.id)
                .values(snapshot_ref=_snapshot_ref(row))
            )
        last = rows[-1].id


def _snapshot_ref(row: Any) -> str:
    # The spelling of `heads.snapshot_ref` when this revision was written.
    facts = {
        "message_seq": row.message_seq,
        "change": row.change,
        "snapshot": json.loads(row.snapshot),
        "prompts": json.loads(row.prompts),
    }
    return sha256(canonical(facts))
