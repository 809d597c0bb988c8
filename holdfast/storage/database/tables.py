"""Tables of the core: operators, projects, sessions, messages, runs and what they call."""

from __future__ import annotations

from typing import Any

from sqlalchemy import BigInteger, Column, Float, Index, Integer, UniqueConstraint
from sqlmodel import Field, SQLModel

from holdfast.storage.database.columns import json_column, text_column

# SQLite gives rowids only to a column that is exactly INTEGER.
_NUMBER = BigInteger().with_variant(Integer, "sqlite")


def _big(*, default: int | None = 0) -> Any:
    return Field(default=default, sa_type=BigInteger)


class Operator(SQLModel, table=True):
    """Somebody who owns sessions."""

    __tablename__ = "operators"
    id: str = Field(primary_key=True)
    name: str = Field(unique=True)
    created_at: int = _big()
    running_limit: int | None = None
    disabled: bool = False


class Token(SQLModel, table=True):
    """A secret at rest: only its SHA-256."""

    __tablename__ = "tokens"
    id: str = Field(primary_key=True)
    operator_id: str = Field(index=True)
    token_hash: str = Field(unique=True)
    kind: str  # bearer | launch | cookie
    label: str = ""
    created_at: int = _big()
    expires_at: int | None = _big(default=None)
    used_at: int | None = _big(default=None)
    revoked_at: int | None = _big(default=None)


class Project(SQLModel, table=True):
    """A folder with a project file, as one operator loaded it."""

    __tablename__ = "projects"
    __table_args__ = (UniqueConstraint("created_by", "path"),)
    id: str = Field(primary_key=True)
    created_by: str = Field(index=True)
    name: str
    path: str
    state: str = "ready"  # ready | invalid
    dsl_hash: str = ""
    # Sessions that began before 0007 have the hash of the file's meaning, not of its bytes.
    dsl_meaning: str | None = None
    # What new sessions run with, and what the operator trusted last: hashes in project_files.
    file_hash: str | None = None
    trusted_hash: str | None = None
    # What the file allows beyond the trusted one; empty when all of it is in force.
    loosens: list[dict[str, Any]] | None = Field(default=None, sa_column=json_column())
    error: dict[str, Any] | None = Field(default=None, sa_column=json_column())
    running_limit: int = 4
    next_issue_number: int = 1
    created_at: int = _big()
    updated_at: int = _big()


class ProjectFileRow(SQLModel, table=True):
    """A project file as it was, by hash: sessions keep the one they began with."""

    __tablename__ = "project_files"
    hash: str = Field(primary_key=True)
    content: dict[str, Any] = Field(sa_column=json_column(nullable=False))
    created_at: int = _big()


class SessionRow(SQLModel, table=True):
    """A session with its counters; lists and totals read nothing else."""

    __tablename__ = "sessions"
    __table_args__ = (
        Index("ix_sessions_owner_active", "created_by", "archived", "last_active"),
        Index("ix_sessions_project_active", "project_id", "archived", "last_active"),
        Index("ix_sessions_state", "state", "created_by", "project_id"),
        Index("ix_sessions_title", "created_by", "title", unique=True),
        Index("ix_sessions_attention", "attention_kind", "created_by"),
    )
    id: str = Field(primary_key=True)
    project_id: str = Field(foreign_key="projects.id")
    created_by: str
    state: str = "idle"
    version: int = 0
    created_at: int = _big()
    updated_at: int = _big()
    ended_at: int | None = _big(default=None)
    end_reason: str | None = None
    title: str | None = None
    title_source: str | None = None  # user | auto
    source: str = "api"
    mode: str = "auto"
    forked_from: str | None = None
    parent_session_id: str | None = Field(
        default=None, index=True, foreign_key="sessions.id", ondelete="SET NULL"
    )
    model_override: str | None = None
    bound_issue: str | None = Field(default=None, index=True, foreign_key="issues.id")
    working_directory: str
    dsl_hash: str
    # The project file in force; sessions of before 0008 run with the one of their `dsl_hash`.
    file_hash: str | None = None
    # The areas of the project file that nobody had trusted when the session began.
    withheld: list[str] | None = Field(default=None, sa_column=json_column())
    current_head: str | None = None
    active_run: str | None = None
    current_checkpoint: str | None = None
    failure: dict[str, Any] | None = Field(default=None, sa_column=json_column())
    prompts: dict[str, str] = Field(default_factory=dict, sa_column=json_column(nullable=False))
    archived: bool = False
    pinned: bool = False
    purged: bool = False
    preview: str = ""
    last_active: int = _big()
    message_seq: int = 0
    event_seq: int = 0
    frame_seq: int = 0
    frame_floor: int = 0
    change_seq: int = 0
    event_hash: str = ""
    message_count: int = 0
    tool_call_count: int = 0
    run_count: int = 0
    input_tokens: int = _big()
    output_tokens: int = _big()
    cache_read_tokens: int = _big()
    cache_write_tokens: int = _big()
    reasoning_tokens: int = _big()
    api_calls: int = 0
    estimated_cost_usd: float | None = None
    actual_cost_usd: float | None = None
    cost_status: str | None = None
    cost_source: str | None = None
    # Sessions with equal ids begin their requests with the same words: a fork has its source's.
    cache_id: str | None = None
    # The machine with its files and processes; None until a step needs one.
    host_id: str | None = Field(default=None, index=True)
    # How many messages wait in it (`waiting_messages`).
    waiting: int = 0
    # What it needs from a person, worked out anew whenever one of its sources changes.
    attention: dict[str, Any] | None = Field(default=None, sa_column=json_column())
    attention_kind: str | None = None
    # The run that failed and that nobody has seen since.
    failed_run_id: str | None = None
    # The last run of a message that ended.
    last_run_id: str | None = None
    # The provider's trouble with the active run, while it lasts.
    trouble: dict[str, Any] | None = Field(default=None, sa_column=json_column())
    # Everybody at work in it waits for an operator's word: it runs, and takes nobody's place.
    without_slot: bool = False
    stuck_guard: bool = True  # pause when the same calls have the same results again and again


class WaitingMessage(SQLModel, table=True):
    """A message that was accepted while its session was busy; it waits for its turn."""

    __tablename__ = "waiting_messages"
    id: str = Field(primary_key=True)
    session_id: str = Field(index=True)
    position: int
    when_busy: str  # queue | steer | interrupt
    content: str = Field(sa_column=text_column(nullable=False))
    model_override: str | None = None
    user_id: str = ""
    run_id: str | None = None  # of the run that it will begin, where that was promised
    created_at: int = _big()


class InboxMessage(SQLModel, table=True):
    """Content that the API staged; nobody was promised anything yet."""

    __tablename__ = "inbox"
    id: str = Field(primary_key=True)
    session_id: str = Field(index=True)
    content: str = Field(sa_column=text_column(nullable=False))
    model_override: str | None = None
    created_at: int = _big()


class Message(SQLModel, table=True):
    """One entry of a conversation, never changed once written but to complete a stream."""

    __tablename__ = "messages"
    __table_args__ = (
        Index("ix_messages_session_seq", "session_id", "seq"),
        Index("ix_messages_session_created", "session_id", "created_at"),
        # A number is never given twice, also after a purge: search files texts under it.
        {"sqlite_autoincrement": True},
    )
    number: int | None = Field(
        default=None, sa_column=Column(_NUMBER, primary_key=True, autoincrement=True)
    )
    id: str = Field(unique=True)
    session_id: str = Field(foreign_key="sessions.id")
    run_id: str | None = Field(default=None, index=True)
    seq: int
    role: str  # operator | primary | subagent | system | tool
    agent_path: str = "primary"
    content: str = Field(sa_column=text_column(nullable=False))
    created_at: int = _big()
    meta: dict[str, Any] = Field(
        default_factory=dict, sa_column=json_column(nullable=False)
    )  # `metadata` on the wire; the name is taken in SQLAlchemy
    tool_call_id: str | None = None
    tool_name: str | None = None
    tool_calls: list[dict[str, Any]] | None = Field(default=None, sa_column=json_column())
    model: str | None = None
    tokens: int = 0
    pinned: bool = False
    invocation_id: str | None = None


class Supersession(SQLModel, table=True):
    """One cause why a message no longer counts; it counts again when every cause is undone."""

    __tablename__ = "supersessions"
    __table_args__ = (
        UniqueConstraint("session_id", "message_id", "cause", "cause_id"),
        Index("ix_supersessions_cause", "session_id", "cause_id"),
        Index("ix_supersessions_change", "session_id", "change"),
        Index("ix_supersessions_undone", "session_id", "undone_change"),
    )
    number: int | None = Field(
        default=None, sa_column=Column(_NUMBER, primary_key=True, autoincrement=True)
    )
    session_id: str
    message_id: str
    cause: str  # rollback | compaction | discard | retry
    cause_id: str
    change: int
    created_at: int = _big()
    undone_change: int | None = None
    undone_at: int | None = _big(default=None)


class Run(SQLModel, table=True):
    """One unit of model work, from a message to its answer."""

    __tablename__ = "runs"
    __table_args__ = (
        Index("ix_runs_session_created", "session_id", "created_at"),
        Index("ix_runs_head", "session_id", "last_head"),
    )
    id: str = Field(primary_key=True)
    session_id: str = Field(foreign_key="sessions.id")
    state: str  # pending | running | done | failed | cancelled
    created_at: int = _big()
    started_at: int | None = _big(default=None)
    completed_at: int | None = _big(default=None)
    duration_ms: int | None = _big(default=None)
    tokens_in: int = _big()
    tokens_out: int = _big()
    cost_usd: float | None = None
    steps: int = 0
    error: dict[str, Any] | None = Field(default=None, sa_column=json_column())
    finish_reason: str | None = None
    operator_message: str | None = None
    primary_response: str | None = None
    user_id: str = ""
    tree_before: str | None = None
    # The first head that lists the row, and the last one that lists it as it is now.
    first_head: int | None = None
    last_head: int | None = None


class Call(SQLModel, table=True):
    """One request to a model, by reference: who asked what is a descriptor in the blob store."""

    __tablename__ = "calls"
    __table_args__ = (
        Index("ix_calls_session", "session_id", "created_at"),
        Index("ix_calls_created", "created_at"),
        Index("ix_calls_head", "session_id", "last_head"),
    )
    id: str = Field(primary_key=True)
    session_id: str
    run_id: str | None = Field(default=None, index=True)
    head: str | None = None
    step: int = 0
    attempt: int = 1
    agent_path: str = "primary"
    type: str = "root-agent"
    status: str = "started"
    request_ref: str | None = None
    # A blob with a leaf call's answer; an agent's answer is the message `message_id` (decision 21).
    response_ref: str | None = None
    error: dict[str, Any] | None = Field(default=None, sa_column=json_column())
    model: str | None = None
    provider: str | None = None
    input_tokens: int = _big()
    output_tokens: int = _big()
    cache_read_tokens: int = _big()
    cache_write_tokens: int = _big()
    reasoning_tokens: int = _big()
    cost_usd: float | None = Field(default=None, sa_type=Float)
    cost_status: str | None = None
    cost_source: str | None = None
    message_id: str | None = None
    created_at: int = _big()
    completed_at: int | None = _big(default=None)
    # The first head that lists the row, and the last one that lists it as it is now.
    first_head: int | None = None
    last_head: int | None = None


class ToolCallRow(SQLModel, table=True):
    """One tool call of a model, and what came of it."""

    __tablename__ = "tool_calls"
    id: str = Field(primary_key=True)
    run_id: str = Field(index=True, foreign_key="runs.id")
    session_id: str = Field(index=True)
    caller: str
    provider_call_id: str = ""
    message_id: str | None = None
    position: int = 0
    tool_name: str
    input: dict[str, Any] = Field(sa_column=json_column(nullable=False))
    output: Any = Field(default=None, sa_column=json_column())
    output_ref: str | None = None
    result_message_id: str | None = None
    state: str = "pending"  # pending | running | done | failed
    attempt: int = 0
    created_at: int = _big()
    completed_at: int | None = _big(default=None)


class SubagentInvocation(SQLModel, table=True):
    """One subagent at work inside a run."""

    __tablename__ = "subagent_invocations"
    __table_args__ = (Index("ix_invocations_head", "session_id", "last_head"),)
    id: str = Field(primary_key=True)
    run_id: str = Field(index=True, foreign_key="runs.id")
    session_id: str = Field(index=True)
    subagent_name: str
    agent_path: str
    tool_call_id: str | None = None
    cage_id: str | None = None
    state: str = "spawned"  # spawned | running | done | failed | killed
    spawned_at: int = _big()
    exited_at: int | None = _big(default=None)
    exit_code: int | None = None
    error: dict[str, Any] | None = Field(default=None, sa_column=json_column())
    # Decision 20: a subagent works in its caller's session and begins with an empty context.
    type: str | None = "subagent"
    callee_session: str | None = None
    caller_head_before: str | None = None
    caller_head_after: str | None = None
    callee_head_before: str | None = None
    callee_head_after: str | None = None
    # The first head that lists the row, and the last one that lists it as it is now.
    first_head: int | None = None
    last_head: int | None = None
