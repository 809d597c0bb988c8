"""Operators, projects, sessions, messages, runs and what they call."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None

# SQLite gives rowids only to a column that is exactly INTEGER.
_NUMBER = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
TABLES = (
    "calls",
    "inbox",
    "messages",
    "operators",
    "project_files",
    "projects",
    "runs",
    "sessions",
    "subagent_invocations",
    "supersessions",
    "tokens",
    "tool_calls",
)


def upgrade() -> None:
    """Create every table with its indexes."""
    _calls()
    _inbox()
    _messages()
    _operators()
    _project_files()
    _projects()
    _runs()
    _sessions()
    _subagent_invocations()
    _supersessions()
    _tokens()
    _tool_calls()


def downgrade() -> None:
    """Drop every table."""
    for name in reversed(TABLES):
        op.drop_table(name)


def _calls() -> None:
    op.create_table(
        "calls",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("session_id", sa.String(), nullable=False),
        sa.Column("run_id", sa.String(), nullable=True),
        sa.Column("head", sa.String(), nullable=True),
        sa.Column("step", sa.Integer(), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("agent_path", sa.String(), nullable=False),
        sa.Column("type", sa.String(), nullable=False),
        sa.Column("status", sa.String(), nullable=False),
        sa.Column("request_ref", sa.String(), nullable=True),
        sa.Column("error", sa.Text(), nullable=True),
        sa.Column("model", sa.String(), nullable=True),
        sa.Column("provider", sa.String(), nullable=True),
        sa.Column("input_tokens", sa.BigInteger(), nullable=False),
        sa.Column("output_tokens", sa.BigInteger(), nullable=False),
        sa.Column("cache_read_tokens", sa.BigInteger(), nullable=False),
        sa.Column("cache_write_tokens", sa.BigInteger(), nullable=False),
        sa.Column("reasoning_tokens", sa.BigInteger(), nullable=False),
        sa.Column("cost_usd", sa.Float(), nullable=True),
        sa.Column("cost_status", sa.String(), nullable=True),
        sa.Column("cost_source", sa.String(), nullable=True),
        sa.Column("message_id", sa.String(), nullable=True),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("completed_at", sa.BigInteger(), nullable=True),
        sa.Column("first_head", sa.Integer(), nullable=True),
        sa.Column("last_head", sa.Integer(), nullable=True),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index("ix_calls_created", "calls", ["created_at"])
    op.create_index("ix_calls_head", "calls", ["session_id", "last_head"])
    op.create_index("ix_calls_run_id", "calls", ["run_id"])
    op.create_index("ix_calls_session", "calls", ["session_id", "created_at"])


def _inbox() -> None:
    op.create_table(
        "inbox",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("session_id", sa.String(), nullable=False),
        sa.Column("content", sa.Text(), nullable=False),
        sa.Column("model_override", sa.String(), nullable=True),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index("ix_inbox_session_id", "inbox", ["session_id"])


def _messages() -> None:
    op.create_table(
        "messages",
        sa.Column("number", _NUMBER, autoincrement=True, nullable=False),
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("session_id", sa.String(), nullable=False),
        sa.Column("run_id", sa.String(), nullable=True),
        sa.Column("seq", sa.Integer(), nullable=False),
        sa.Column("role", sa.String(), nullable=False),
        sa.Column("agent_path", sa.String(), nullable=False),
        sa.Column("content", sa.Text(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("meta", sa.Text(), nullable=False),
        sa.Column("tool_call_id", sa.String(), nullable=True),
        sa.Column("tool_name", sa.String(), nullable=True),
        sa.Column("tool_calls", sa.Text(), nullable=True),
        sa.Column("model", sa.String(), nullable=True),
        sa.Column("tokens", sa.Integer(), nullable=False),
        sa.Column("pinned", sa.Boolean(), nullable=False),
        sa.Column("invocation_id", sa.String(), nullable=True),
        sa.PrimaryKeyConstraint("number"),
        sa.UniqueConstraint("id"),
        # A number is never given twice, also after a purge: search files texts under it.
        sqlite_autoincrement=True,
    )
    op.create_index("ix_messages_run_id", "messages", ["run_id"])
    op.create_index("ix_messages_session_created", "messages", ["session_id", "created_at"])
    op.create_index("ix_messages_session_seq", "messages", ["session_id", "seq"])


def _operators() -> None:
    op.create_table(
        "operators",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("running_limit", sa.Integer(), nullable=True),
        sa.Column("disabled", sa.Boolean(), nullable=False),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("name"),
    )


def _project_files() -> None:
    op.create_table(
        "project_files",
        sa.Column("hash", sa.String(), nullable=False),
        sa.Column("content", sa.Text(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("hash"),
    )


def _projects() -> None:
    op.create_table(
        "projects",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("created_by", sa.String(), nullable=False),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("path", sa.String(), nullable=False),
        sa.Column("state", sa.String(), nullable=False),
        sa.Column("dsl_hash", sa.String(), nullable=False),
        sa.Column("error", sa.Text(), nullable=True),
        sa.Column("running_limit", sa.Integer(), nullable=False),
        sa.Column("next_issue_number", sa.Integer(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("updated_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("created_by", "path"),
    )
    op.create_index("ix_projects_created_by", "projects", ["created_by"])


def _runs() -> None:
    op.create_table(
        "runs",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("session_id", sa.String(), nullable=False),
        sa.Column("state", sa.String(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("started_at", sa.BigInteger(), nullable=True),
        sa.Column("completed_at", sa.BigInteger(), nullable=True),
        sa.Column("duration_ms", sa.BigInteger(), nullable=True),
        sa.Column("tokens_in", sa.BigInteger(), nullable=False),
        sa.Column("tokens_out", sa.BigInteger(), nullable=False),
        sa.Column("cost_usd", sa.Float(), nullable=True),
        sa.Column("steps", sa.Integer(), nullable=False),
        sa.Column("error", sa.Text(), nullable=True),
        sa.Column("finish_reason", sa.String(), nullable=True),
        sa.Column("operator_message", sa.String(), nullable=True),
        sa.Column("primary_response", sa.String(), nullable=True),
        sa.Column("user_id", sa.String(), nullable=False),
        sa.Column("tree_before", sa.String(), nullable=True),
        sa.Column("first_head", sa.Integer(), nullable=True),
        sa.Column("last_head", sa.Integer(), nullable=True),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index("ix_runs_head", "runs", ["session_id", "last_head"])
    op.create_index("ix_runs_session_created", "runs", ["session_id", "created_at"])


def _sessions() -> None:
    op.create_table(
        "sessions",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("project_id", sa.String(), nullable=False),
        sa.Column("created_by", sa.String(), nullable=False),
        sa.Column("state", sa.String(), nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("updated_at", sa.BigInteger(), nullable=False),
        sa.Column("ended_at", sa.BigInteger(), nullable=True),
        sa.Column("end_reason", sa.String(), nullable=True),
        sa.Column("title", sa.String(), nullable=True),
        sa.Column("title_source", sa.String(), nullable=True),
        sa.Column("source", sa.String(), nullable=False),
        sa.Column("mode", sa.String(), nullable=False),
        sa.Column("forked_from", sa.String(), nullable=True),
        sa.Column("parent_session_id", sa.String(), nullable=True),
        sa.Column("model_override", sa.String(), nullable=True),
        sa.Column("bound_issue", sa.String(), nullable=True),
        sa.Column("working_directory", sa.String(), nullable=False),
        sa.Column("dsl_hash", sa.String(), nullable=False),
        sa.Column("current_head", sa.String(), nullable=True),
        sa.Column("active_run", sa.String(), nullable=True),
        sa.Column("current_checkpoint", sa.String(), nullable=True),
        sa.Column("failure", sa.Text(), nullable=True),
        sa.Column("prompts", sa.Text(), nullable=False),
        sa.Column("archived", sa.Boolean(), nullable=False),
        sa.Column("pinned", sa.Boolean(), nullable=False),
        sa.Column("purged", sa.Boolean(), nullable=False),
        sa.Column("preview", sa.String(), nullable=False),
        sa.Column("last_active", sa.BigInteger(), nullable=False),
        sa.Column("message_seq", sa.Integer(), nullable=False),
        sa.Column("event_seq", sa.Integer(), nullable=False),
        sa.Column("frame_seq", sa.Integer(), nullable=False),
        sa.Column("frame_floor", sa.Integer(), nullable=False),
        sa.Column("change_seq", sa.Integer(), nullable=False),
        sa.Column("event_hash", sa.String(), nullable=False),
        sa.Column("message_count", sa.Integer(), nullable=False),
        sa.Column("tool_call_count", sa.Integer(), nullable=False),
        sa.Column("run_count", sa.Integer(), nullable=False),
        sa.Column("input_tokens", sa.BigInteger(), nullable=False),
        sa.Column("output_tokens", sa.BigInteger(), nullable=False),
        sa.Column("cache_read_tokens", sa.BigInteger(), nullable=False),
        sa.Column("cache_write_tokens", sa.BigInteger(), nullable=False),
        sa.Column("reasoning_tokens", sa.BigInteger(), nullable=False),
        sa.Column("api_calls", sa.Integer(), nullable=False),
        sa.Column("estimated_cost_usd", sa.Float(), nullable=True),
        sa.Column("actual_cost_usd", sa.Float(), nullable=True),
        sa.Column("cost_status", sa.String(), nullable=True),
        sa.Column("cost_source", sa.String(), nullable=True),
        sa.PrimaryKeyConstraint("id"),
    )
    _session_indexes()


def _session_indexes() -> None:
    op.create_index("ix_sessions_bound_issue", "sessions", ["bound_issue"])
    op.create_index(
        "ix_sessions_owner_active", "sessions", ["created_by", "archived", "last_active"]
    )
    op.create_index("ix_sessions_parent_session_id", "sessions", ["parent_session_id"])
    op.create_index(
        "ix_sessions_project_active", "sessions", ["project_id", "archived", "last_active"]
    )
    op.create_index("ix_sessions_state", "sessions", ["state", "created_by", "project_id"])
    op.create_index("ix_sessions_title", "sessions", ["created_by", "title"], unique=True)


def _subagent_invocations() -> None:
    op.create_table(
        "subagent_invocations",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("run_id", sa.String(), nullable=False),
        sa.Column("session_id", sa.String(), nullable=False),
        sa.Column("subagent_name", sa.String(), nullable=False),
        sa.Column("agent_path", sa.String(), nullable=False),
        sa.Column("tool_call_id", sa.String(), nullable=True),
        sa.Column("cage_id", sa.String(), nullable=True),
        sa.Column("state", sa.String(), nullable=False),
        sa.Column("spawned_at", sa.BigInteger(), nullable=False),
        sa.Column("exited_at", sa.BigInteger(), nullable=True),
        sa.Column("exit_code", sa.Integer(), nullable=True),
        sa.Column("error", sa.Text(), nullable=True),
        sa.Column("first_head", sa.Integer(), nullable=True),
        sa.Column("last_head", sa.Integer(), nullable=True),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index("ix_invocations_head", "subagent_invocations", ["session_id", "last_head"])
    op.create_index("ix_subagent_invocations_run_id", "subagent_invocations", ["run_id"])
    op.create_index("ix_subagent_invocations_session_id", "subagent_invocations", ["session_id"])


def _supersessions() -> None:
    op.create_table(
        "supersessions",
        sa.Column("number", _NUMBER, autoincrement=True, nullable=False),
        sa.Column("session_id", sa.String(), nullable=False),
        sa.Column("message_id", sa.String(), nullable=False),
        sa.Column("cause", sa.String(), nullable=False),
        sa.Column("cause_id", sa.String(), nullable=False),
        sa.Column("change", sa.Integer(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("undone_change", sa.Integer(), nullable=True),
        sa.Column("undone_at", sa.BigInteger(), nullable=True),
        sa.PrimaryKeyConstraint("number"),
        sa.UniqueConstraint("session_id", "message_id", "cause", "cause_id"),
    )
    op.create_index("ix_supersessions_cause", "supersessions", ["session_id", "cause_id"])
    op.create_index("ix_supersessions_change", "supersessions", ["session_id", "change"])
    op.create_index("ix_supersessions_undone", "supersessions", ["session_id", "undone_change"])


def _tokens() -> None:
    op.create_table(
        "tokens",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("operator_id", sa.String(), nullable=False),
        sa.Column("token_hash", sa.String(), nullable=False),
        sa.Column("kind", sa.String(), nullable=False),
        sa.Column("label", sa.String(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("expires_at", sa.BigInteger(), nullable=True),
        sa.Column("used_at", sa.BigInteger(), nullable=True),
        sa.Column("revoked_at", sa.BigInteger(), nullable=True),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("token_hash"),
    )
    op.create_index("ix_tokens_operator_id", "tokens", ["operator_id"])


def _tool_calls() -> None:
    op.create_table(
        "tool_calls",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("run_id", sa.String(), nullable=False),
        sa.Column("session_id", sa.String(), nullable=False),
        sa.Column("caller", sa.String(), nullable=False),
        sa.Column("provider_call_id", sa.String(), nullable=False),
        sa.Column("message_id", sa.String(), nullable=True),
        sa.Column("position", sa.Integer(), nullable=False),
        sa.Column("tool_name", sa.String(), nullable=False),
        sa.Column("input", sa.Text(), nullable=False),
        sa.Column("output", sa.Text(), nullable=True),
        sa.Column("output_ref", sa.String(), nullable=True),
        sa.Column("result_message_id", sa.String(), nullable=True),
        sa.Column("state", sa.String(), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("completed_at", sa.BigInteger(), nullable=True),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index("ix_tool_calls_run_id", "tool_calls", ["run_id"])
    op.create_index("ix_tool_calls_session_id", "tool_calls", ["session_id"])
