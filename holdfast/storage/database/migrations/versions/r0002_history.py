"""Events, frames, checkpoints, compactions, heads, terminals."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"

TABLES = (
    "blobs",
    "checkpoints",
    "compactions",
    "derivations",
    "events",
    "frames",
    "heads",
    "idempotency_keys",
    "leases",
    "meta",
    "prompt_edits",
    "ptys",
    "run_pty_transcripts",
)


def upgrade() -> None:
    """Create every table with its indexes."""
    _blobs()
    _checkpoints()
    _compactions()
    _derivations()
    _events()
    _frames()
    _heads()
    _idempotency_keys()
    _leases()
    _meta()
    _prompt_edits()
    _ptys()
    _run_pty_transcripts()


def downgrade() -> None:
    """Drop every table."""
    for name in reversed(TABLES):
        op.drop_table(name)


def _blobs() -> None:
    op.create_table(
        "blobs",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("sha256", sa.String(), nullable=False),
        sa.Column("size", sa.BigInteger(), nullable=False),
        sa.Column("media_type", sa.String(), nullable=False),
        sa.Column("encoding", sa.String(), nullable=False),
        sa.Column("compression", sa.String(), nullable=True),
        sa.Column("store", sa.String(), nullable=False),
        sa.Column("key", sa.String(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("id"),
    )


def _checkpoints() -> None:
    op.create_table(
        "checkpoints",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("session_id", sa.String(), nullable=False),
        sa.Column("run_id", sa.String(), nullable=True),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("created_by", sa.String(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("compaction_id", sa.String(), nullable=True),
        sa.Column("message_seq", sa.Integer(), nullable=False),
        sa.Column("change", sa.Integer(), nullable=False),
        sa.Column("message_history_cursor", sa.String(), nullable=True),
        sa.Column("message_count", sa.Integer(), nullable=False),
        sa.Column("snapshot", sa.Text(), nullable=False),
        sa.Column("prompts", sa.Text(), nullable=False),
        sa.Column("head_id", sa.String(), nullable=True),
        sa.Column("tree", sa.String(), nullable=True),
        sa.Column("tree_note", sa.String(), nullable=False),
        sa.Column("undo_tree", sa.String(), nullable=True),
        sa.Column("resumed_at", sa.BigInteger(), nullable=True),
        sa.Column("rolled_back", sa.Boolean(), nullable=False),
        sa.Column("superseded_by", sa.String(), nullable=True),
        sa.Column("archived", sa.Boolean(), nullable=False),
        sa.Column("resumed_command", sa.String(), nullable=True),
        sa.Column("rolled_back_command", sa.String(), nullable=True),
        sa.Column("rolled_back_answer", sa.Text(), nullable=True),
        sa.Column("first_head", sa.Integer(), nullable=True),
        sa.Column("last_head", sa.Integer(), nullable=True),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index("ix_checkpoints_head", "checkpoints", ["session_id", "last_head"])
    op.create_index("ix_checkpoints_session_created", "checkpoints", ["session_id", "created_at"])


def _compactions() -> None:
    op.create_table(
        "compactions",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("session_id", sa.String(), nullable=False),
        sa.Column("run_id", sa.String(), nullable=True),
        sa.Column("agent_path", sa.String(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("finished_at", sa.BigInteger(), nullable=True),
        sa.Column("undone_at", sa.BigInteger(), nullable=True),
        sa.Column("state", sa.String(), nullable=False),
        sa.Column("collapsed_count", sa.Integer(), nullable=False),
        sa.Column("enough", sa.Boolean(), nullable=False),
        sa.Column("trigger", sa.String(), nullable=False),
        sa.Column("strategy", sa.String(), nullable=False),
        sa.Column("threshold_estimate", sa.Float(), nullable=False),
        sa.Column("after_estimate", sa.Float(), nullable=False),
        sa.Column("window_upper", sa.Float(), nullable=False),
        sa.Column("window_lower", sa.Float(), nullable=False),
        sa.Column("window_tokens", sa.Integer(), nullable=False),
        sa.Column("superseded_message_ids", sa.Text(), nullable=False),
        sa.Column("summary_message_id", sa.String(), nullable=True),
        sa.Column("summary", sa.Text(), nullable=True),
        sa.Column("plugins_fired", sa.Text(), nullable=False),
        sa.Column("plugin_cost", sa.Text(), nullable=True),
        sa.Column("fallback_occurred", sa.Boolean(), nullable=False),
        sa.Column("fallback_reason", sa.String(), nullable=True),
        sa.Column("operator_flag", sa.String(), nullable=True),
        sa.Column("operator_notes", sa.Text(), nullable=True),
        sa.Column("checkpoint_id", sa.String(), nullable=True),
        sa.Column("rolled_back", sa.Boolean(), nullable=False),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index("ix_compactions_agent_path", "compactions", ["agent_path"])
    op.create_index("ix_compactions_run_id", "compactions", ["run_id"])
    op.create_index("ix_compactions_session_id", "compactions", ["session_id"])


def _derivations() -> None:
    op.create_table(
        "derivations",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("type", sa.String(), nullable=False),
        sa.Column("source_session", sa.String(), nullable=False),
        sa.Column("source_head", sa.String(), nullable=True),
        sa.Column("target_session", sa.String(), nullable=False),
        sa.Column("cutoff_seq", sa.Integer(), nullable=False),
        sa.Column("cutoff_change", sa.Integer(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("target_session"),
    )
    op.create_index("ix_derivations_source_head", "derivations", ["source_head"])
    op.create_index("ix_derivations_source_session", "derivations", ["source_session"])


def _events() -> None:
    op.create_table(
        "events",
        sa.Column("session_id", sa.String(), nullable=False),
        sa.Column("seq", sa.Integer(), nullable=False),
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("kind", sa.String(), nullable=False),
        sa.Column("at", sa.BigInteger(), nullable=False),
        sa.Column("run_id", sa.String(), nullable=True),
        sa.Column("row_kind", sa.String(), nullable=True),
        sa.Column("row_id", sa.String(), nullable=True),
        sa.Column("data", sa.Text(), nullable=False),
        sa.Column("hash", sa.String(), nullable=False),
        sa.PrimaryKeyConstraint("session_id", "seq"),
        sa.UniqueConstraint("id"),
    )
    op.create_index("ix_events_kind", "events", ["kind", "at"])
    op.create_index("ix_events_row", "events", ["session_id", "row_kind", "row_id"])


def _frames() -> None:
    op.create_table(
        "frames",
        sa.Column("session_id", sa.String(), nullable=False),
        sa.Column("seq", sa.Integer(), nullable=False),
        sa.Column("type", sa.String(), nullable=False),
        sa.Column("payload", sa.Text(), nullable=False),
        sa.Column("size", sa.Integer(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("session_id", "seq"),
    )
    op.create_index("ix_frames_created", "frames", ["created_at"])
    op.create_index("ix_frames_size", "frames", ["session_id", "size"])


def _heads() -> None:
    op.create_table(
        "heads",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("session_id", sa.String(), nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("basis", sa.String(), nullable=True),
        sa.Column("status", sa.String(), nullable=False),
        sa.Column("fingerprint", sa.String(), nullable=False),
        sa.Column("state_ref", sa.String(), nullable=False),
        sa.Column("state_version", sa.Integer(), nullable=False),
        sa.Column("final_ref", sa.String(), nullable=True),
        sa.Column("final_summary", sa.Text(), nullable=True),
        sa.Column("run_id", sa.String(), nullable=True),
        sa.Column("checkpoint_id", sa.String(), nullable=True),
        sa.Column("message_seq", sa.Integer(), nullable=False),
        sa.Column("change", sa.Integer(), nullable=False),
        sa.Column("message_count", sa.Integer(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("session_id", "number"),
    )
    op.create_index("ix_heads_checkpoint_id", "heads", ["checkpoint_id"])
    op.create_index("ix_heads_run_id", "heads", ["run_id"])


def _idempotency_keys() -> None:
    op.create_table(
        "idempotency_keys",
        sa.Column("operator_id", sa.String(), nullable=False),
        sa.Column("key", sa.String(), nullable=False),
        sa.Column("request_hash", sa.String(), nullable=False),
        sa.Column("command_id", sa.String(), nullable=False),
        sa.Column("status", sa.Integer(), nullable=True),
        sa.Column("body", sa.Text(), nullable=True),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("operator_id", "key"),
    )


def _leases() -> None:
    op.create_table(
        "leases",
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("holder", sa.String(), nullable=False),
        sa.Column("expires_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("name"),
    )


def _meta() -> None:
    op.create_table(
        "meta",
        sa.Column("key", sa.String(), nullable=False),
        sa.Column("value", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("key"),
    )


def _prompt_edits() -> None:
    op.create_table(
        "prompt_edits",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("checkpoint_id", sa.String(), nullable=False),
        sa.Column("session_id", sa.String(), nullable=False),
        sa.Column("target", sa.String(), nullable=False),
        sa.Column("old_hash", sa.String(), nullable=False),
        sa.Column("new_hash", sa.String(), nullable=False),
        sa.Column("new_content", sa.Text(), nullable=False),
        sa.Column("edited_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index("ix_prompt_edits_checkpoint_id", "prompt_edits", ["checkpoint_id"])


def _ptys() -> None:
    op.create_table(
        "ptys",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("session_id", sa.String(), nullable=False),
        sa.Column("run_id", sa.String(), nullable=True),
        sa.Column("subagent", sa.String(), nullable=True),
        sa.Column("tool_call_id", sa.String(), nullable=True),
        sa.Column("command", sa.Text(), nullable=False),
        sa.Column("state", sa.String(), nullable=False),
        sa.Column("cols", sa.Integer(), nullable=False),
        sa.Column("rows", sa.Integer(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("closed_at", sa.BigInteger(), nullable=True),
        sa.Column("close_reason", sa.String(), nullable=True),
        sa.Column("exit_code", sa.Integer(), nullable=True),
        sa.Column("cage", sa.String(), nullable=False),
        sa.Column("created_by", sa.String(), nullable=False),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index("ix_ptys_session_id", "ptys", ["session_id"])


def _run_pty_transcripts() -> None:
    op.create_table(
        "run_pty_transcripts",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("run_id", sa.String(), nullable=True),
        sa.Column("session_id", sa.String(), nullable=False),
        sa.Column("pty_id", sa.String(), nullable=False),
        sa.Column("transcript", sa.String(), nullable=False),
        sa.Column("text_message", sa.Integer(), nullable=True),
        sa.Column("text", sa.Text(), nullable=False),
        sa.Column("line_count", sa.Integer(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("pty_id"),
    )
    op.create_index("ix_run_pty_transcripts_session_id", "run_pty_transcripts", ["session_id"])
