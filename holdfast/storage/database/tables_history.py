"""Tables of a session's past: events, frames, checkpoints, compactions, heads, terminals."""

from __future__ import annotations

from typing import Any

from sqlalchemy import BigInteger, Index, UniqueConstraint
from sqlmodel import Field, SQLModel

from holdfast.storage.database.columns import json_column, text_column


def _big(*, default: int | None = 0) -> Any:
    return Field(default=default, sa_type=BigInteger)


class EventRow(SQLModel, table=True):
    """One audit event; each row's hash covers the row before it."""

    __tablename__ = "events"
    __table_args__ = (
        Index("ix_events_kind", "kind", "at"),
        Index("ix_events_row", "session_id", "row_kind", "row_id"),
    )
    session_id: str = Field(primary_key=True)
    seq: int = Field(primary_key=True)
    id: str = Field(unique=True)
    kind: str
    at: int = _big()
    run_id: str | None = None
    row_kind: str | None = None
    row_id: str | None = None
    data: dict[str, Any] = Field(sa_column=json_column(nullable=False))
    hash: str = ""


class Frame(SQLModel, table=True):
    """One frame of the output channel; pruned by age and size."""

    __tablename__ = "frames"
    __table_args__ = (
        Index("ix_frames_created", "created_at"),
        Index("ix_frames_size", "session_id", "size"),
    )
    session_id: str = Field(primary_key=True)
    seq: int = Field(primary_key=True)
    type: str
    payload: dict[str, Any] = Field(sa_column=json_column(nullable=False))
    size: int = 0
    created_at: int = _big()


class Checkpoint(SQLModel, table=True):
    """A pause point: a cursor and what was in effect, not a copy."""

    __tablename__ = "checkpoints"
    __table_args__ = (
        Index("ix_checkpoints_session_created", "session_id", "created_at"),
        Index("ix_checkpoints_head", "session_id", "last_head"),
    )
    id: str = Field(primary_key=True)
    session_id: str = Field(foreign_key="sessions.id")
    run_id: str | None = None
    created_at: int = _big()
    created_by: str  # operator | model | compaction | budget
    reason: str = Field(default="", sa_column=text_column(nullable=False))
    compaction_id: str | None = None
    message_seq: int = 0
    change: int = 0
    message_history_cursor: str | None = None
    message_count: int = 0
    snapshot: dict[str, Any] = Field(default_factory=dict, sa_column=json_column(nullable=False))
    prompts: dict[str, str] = Field(default_factory=dict, sa_column=json_column(nullable=False))
    head_id: str | None = None
    tree: str | None = None
    tree_note: str = ""
    undo_tree: str | None = None
    resumed_at: int | None = _big(default=None)
    rolled_back: bool = False
    superseded_by: str | None = None
    archived: bool = False
    # Which command did it and what it was answered, so that a repeat is answered the same.
    resumed_command: str | None = None
    rolled_back_command: str | None = None
    rolled_back_answer: dict[str, Any] | None = Field(default=None, sa_column=json_column())
    # The first head that lists the row, and the last one that lists it as it is now.
    first_head: int | None = None
    last_head: int | None = None


class TreeBundle(SQLModel, table=True):
    """A snapshot of files as a git bundle in the blob store, for every machine.

    It holds what `basis`, an earlier snapshot of the session, does not have.
    """

    __tablename__ = "tree_bundles"
    session_id: str = Field(primary_key=True)
    tree: str = Field(primary_key=True)
    basis: str | None = None
    depth: int = 0  # how many bundles must be unpacked before this one
    blob: str = Field(index=True)
    size: int = _big()
    created_at: int = _big()


class PromptEdit(SQLModel, table=True):
    """One audited change of a prompt at a checkpoint."""

    __tablename__ = "prompt_edits"
    id: str = Field(primary_key=True)
    checkpoint_id: str = Field(index=True, foreign_key="checkpoints.id")
    session_id: str
    target: str
    old_hash: str
    new_hash: str
    new_content: str = Field(sa_column=text_column(nullable=False))
    edited_at: int = _big()


class Compaction(SQLModel, table=True):
    """What one compaction saw, did and cost."""

    __tablename__ = "compactions"
    id: str = Field(primary_key=True)
    session_id: str = Field(index=True)
    run_id: str | None = Field(default=None, index=True)
    agent_path: str = Field(default="primary", index=True)
    created_at: int = _big()
    finished_at: int | None = _big(default=None)
    undone_at: int | None = _big(default=None)
    state: str = "done"  # pending | set_aside | done | rejected | collapsed
    collapsed_count: int = 0  # how many older records this row stands for (K-086)
    enough: bool = True
    correction: float | None = None  # tokens as the provider counts them, for one of our estimate
    trigger: str
    strategy: str
    threshold_estimate: float = 0.0
    after_estimate: float = 0.0
    window_upper: float = 0.0
    window_lower: float = 0.0
    window_tokens: int = 0
    superseded_message_ids: list[str] = Field(
        default_factory=list, sa_column=json_column(nullable=False)
    )
    summary_message_id: str | None = None
    summary: str | None = Field(default=None, sa_column=text_column())
    plugins_fired: list[dict[str, Any]] = Field(
        default_factory=list, sa_column=json_column(nullable=False)
    )
    plugin_cost: dict[str, Any] | None = Field(default=None, sa_column=json_column())
    fallback_occurred: bool = False
    fallback_reason: str | None = None
    operator_flag: str | None = None
    operator_notes: str | None = Field(default=None, sa_column=text_column())
    checkpoint_id: str | None = None
    rolled_back: bool = False


class Blob(SQLModel, table=True):
    """A committed payload; its bytes are in the blob store of that kind, under `key`."""

    __tablename__ = "blobs"
    id: str = Field(primary_key=True)  # sha256:<hex>
    sha256: str
    size: int = _big()
    media_type: str
    encoding: str = "utf-8"
    compression: str | None = None
    store: str = "file"
    key: str
    created_at: int = _big()


class Head(SQLModel, table=True):
    """An immutable state of a session; its id is the hash of its state root."""

    __tablename__ = "heads"
    __table_args__ = (UniqueConstraint("session_id", "number"),)
    id: str = Field(primary_key=True)
    session_id: str
    number: int  # counts per session, from 1
    basis: str | None = None
    status: str = "complete"
    fingerprint: str = ""
    state_ref: str
    state_version: int = 2
    final_ref: str | None = None
    final_summary: str | None = Field(default=None, sa_column=text_column())
    run_id: str | None = Field(default=None, index=True)
    checkpoint_id: str | None = Field(default=None, index=True)
    snapshot_ref: str | None = None  # the hash of the checkpoint's snapshot
    message_seq: int = 0
    change: int = 0
    message_count: int = 0
    created_at: int = _big()
    cache_id: str | None = None


class Derivation(SQLModel, table=True):
    """An edge from a source's head to the session that was made from it."""

    __tablename__ = "derivations"
    id: str = Field(primary_key=True)
    type: str = "fork"
    source_session: str = Field(index=True)
    source_head: str | None = Field(default=None, index=True)
    target_session: str = Field(unique=True)
    cutoff_seq: int
    cutoff_change: int
    created_at: int = _big()


class Pty(SQLModel, table=True):
    """A terminal, alive or closed."""

    __tablename__ = "ptys"
    id: str = Field(primary_key=True)
    session_id: str = Field(index=True)
    run_id: str | None = None
    subagent: str | None = None
    tool_call_id: str | None = None
    command: str = Field(default="", sa_column=text_column(nullable=False))
    state: str = "active"  # active | closed; a live one is shown as detached by its lease
    cols: int = 80
    rows: int = 24
    created_at: int = _big()
    closed_at: int | None = _big(default=None)
    close_reason: str | None = None
    exit_code: int | None = None
    cage: str = "disabled"
    created_by: str = "operator"
    attached_at: int | None = _big(default=None)  # an operator's client was first shown it
    host_id: str | None = None  # where its processes are


class PtyTranscript(SQLModel, table=True):
    """Everything a closed terminal showed, with times, in the blob store."""

    __tablename__ = "run_pty_transcripts"
    id: str = Field(primary_key=True)
    run_id: str | None = Field(default=None, index=True, foreign_key="runs.id", ondelete="SET NULL")
    session_id: str = Field(index=True)
    pty_id: str = Field(unique=True)
    transcript: str  # blob id
    text_message: int | None = Field(default=None)
    text: str = Field(default="", sa_column=text_column(nullable=False))
    line_count: int = 0
    created_at: int = _big()


class Lease(SQLModel, table=True):
    """Somebody's right to be the only one, until it expires."""

    __tablename__ = "leases"
    name: str = Field(primary_key=True)
    holder: str
    expires_at: int = _big()


class IdempotencyKey(SQLModel, table=True):
    """What the first request with this key was answered."""

    __tablename__ = "idempotency_keys"
    operator_id: str = Field(primary_key=True)
    key: str = Field(primary_key=True)
    request_hash: str
    command_id: str
    status: int | None = None
    body: str | None = Field(default=None, sa_column=text_column())
    created_at: int = _big()


class Meta(SQLModel, table=True):
    """Small facts about the store itself: watermarks, versions."""

    __tablename__ = "meta"
    key: str = Field(primary_key=True)
    value: str = Field(sa_column=text_column(nullable=False))


class FailedLogin(SQLModel, table=True):
    """How many wrong tokens came from an address within ten seconds."""

    __tablename__ = "failed_logins"
    address: str = Field(primary_key=True)
    slot: int = Field(primary_key=True)
    count: int
