"""Audit events: one frozen type per kind. What is stored is `kind` and `data()`."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, ClassVar


@dataclass(frozen=True, kw_only=True)
class Event:
    """Something that happened to a session."""

    kind: ClassVar[str]

    def data(self) -> dict[str, Any]:
        """The event's own fields, as they are stored and sent."""
        return asdict(self)


@dataclass(frozen=True, kw_only=True)
class SessionCreated(Event):
    kind = "session.created"
    session_id: str
    project_id: str
    user_id: str
    forked_from: str | None = None


@dataclass(frozen=True, kw_only=True)
class SessionQueued(Event):
    kind = "session.queued"
    session_id: str
    run_id: str
    message_id: str
    reason: str
    running_count: int
    limit: int


@dataclass(frozen=True, kw_only=True)
class SessionResumedFromQueue(Event):
    kind = "session.resumed_from_queue"
    session_id: str
    run_id: str
    user_id: str
    running_count: int


@dataclass(frozen=True, kw_only=True)
class SessionQueuedDiscarded(Event):
    kind = "session.queued_discarded"
    session_id: str
    run_id: str
    message_id: str
    user_id: str


@dataclass(frozen=True, kw_only=True)
class SessionState(Event):
    kind = "session.state"
    session_id: str
    from_state: str
    to_state: str
    trigger: str
    queued: bool = False
    reason: str | None = None


@dataclass(frozen=True, kw_only=True)
class SessionAttached(Event):
    kind = "session.attached"
    session_id: str
    user_id: str
    device_hint: str | None = None


@dataclass(frozen=True, kw_only=True)
class SessionDetached(Event):
    kind = "session.detached"
    session_id: str
    reason: str
    user_id: str


@dataclass(frozen=True, kw_only=True)
class SessionEnded(Event):
    kind = "session.ended"
    session_id: str
    user_id: str
    run_count: int
    duration: int
    reason: str


@dataclass(frozen=True, kw_only=True)
class SessionCleared(Event):
    kind = "session.cleared"
    session_id: str
    user_id: str
    messages: int


@dataclass(frozen=True, kw_only=True)
class SessionArchived(Event):
    kind = "session.archived"
    session_id: str
    user_id: str
    archived: bool
    reason: str


@dataclass(frozen=True, kw_only=True)
class SessionImported(Event):
    kind = "session.imported"
    session_id: str
    origin: str
    origin_id: str
    messages: int


@dataclass(frozen=True, kw_only=True)
class SessionFailed(Event):
    kind = "session.failed"
    session_id: str
    error: dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class SessionForked(Event):
    kind = "session.forked"
    session_id: str
    source_session_id: str
    source_head_id: str | None
    checkpoint_id: str | None = None


@dataclass(frozen=True, kw_only=True)
class SessionCrashRecovered(Event):
    kind = "session.crash_recovered"
    session_id: str
    failed_run_id: str
    policy: str
    message: str = "Previous run was interrupted by a daemon restart."


@dataclass(frozen=True, kw_only=True)
class RunningCount(Event):
    kind = "sessions.running_count"
    project_id: str
    running: int
    limit: int
    operator_running: int


@dataclass(frozen=True, kw_only=True)
class CommandRefused(Event):
    kind = "command.refused"
    session_id: str
    command: str
    reason: str


@dataclass(frozen=True, kw_only=True)
class RunCreated(Event):
    kind = "run.created"
    run_id: str
    session_id: str
    message_preview: str


@dataclass(frozen=True, kw_only=True)
class RunCompleted(Event):
    kind = "run.completed"
    run_id: str
    state: str
    duration_ms: int
    tokens: dict[str, int]


@dataclass(frozen=True, kw_only=True)
class RunCancelled(Event):
    kind = "run.cancelled"
    run_id: str
    session_id: str
    user_id: str


@dataclass(frozen=True, kw_only=True)
class CheckpointCreated(Event):
    kind = "checkpoint.created"
    checkpoint_id: str
    session_id: str
    created_by: str
    reason: str


@dataclass(frozen=True, kw_only=True)
class CheckpointResumed(Event):
    kind = "checkpoint.resumed"
    checkpoint_id: str
    session_id: str
    prompts_edited: int


@dataclass(frozen=True, kw_only=True)
class CheckpointRolledBack(Event):
    kind = "checkpoint.rolled_back"
    checkpoint_id: str
    session_id: str
    messages_superseded: int


@dataclass(frozen=True, kw_only=True)
class PromptEdited(Event):
    kind = "prompt.edited"
    checkpoint_id: str
    target: str
    old_hash: str
    new_hash: str


@dataclass(frozen=True, kw_only=True)
class PtyAllocated(Event):
    kind = "pty.allocated"
    pty_id: str
    session_id: str
    subagent_name: str | None


@dataclass(frozen=True, kw_only=True)
class PtyClosed(Event):
    kind = "pty.closed"
    pty_id: str
    reason: str
    transcript_lines: int


@dataclass(frozen=True, kw_only=True)
class PtyReattached(Event):
    kind = "pty.reattached"
    pty_id: str
    scrollback_lines_sent: int


@dataclass(frozen=True, kw_only=True)
class PtyIdle(Event):
    kind = "pty.idle"
    pty_id: str
    idle_s: int


@dataclass(frozen=True, kw_only=True)
class PtyOutputThrottled(Event):
    kind = "pty.output_throttled"
    pty_id: str
    dropped_bytes: int


@dataclass(frozen=True, kw_only=True)
class DslChanged(Event):
    kind = "dsl.changed"
    project_id: str
    old_hash: str
    new_hash: str
    message: str = "DSL changed; new sessions will use the updated config"


@dataclass(frozen=True, kw_only=True)
class CompactionFinished(Event):
    kind = "compaction.finished"
    compaction_id: str
    session_id: str
    trigger: str
    strategy: str
    superseded: int


@dataclass(frozen=True, kw_only=True)
class CompactionPending(Event):
    kind = "compaction.pending"
    compaction_id: str
    session_id: str
    checkpoint_id: str


@dataclass(frozen=True, kw_only=True)
class CompactionUndone(Event):
    kind = "compaction.undone"
    compaction_id: str
    session_id: str
    messages_restored: int


@dataclass(frozen=True, kw_only=True)
class SubagentStarted(Event):
    kind = "subagent.started"
    invocation_id: str
    run_id: str
    name: str


@dataclass(frozen=True, kw_only=True)
class SubagentFinished(Event):
    kind = "subagent.finished"
    invocation_id: str
    run_id: str
    name: str
    state: str


@dataclass(frozen=True, kw_only=True)
class MessageAdded(Event):
    kind = "message.added"
    message_id: str
    role: str
    agent_path: str


@dataclass(frozen=True, kw_only=True)
class CallPut(Event):
    kind = "call.put"
    call_id: str
    status: str
    call_type: str


@dataclass(frozen=True, kw_only=True)
class HeadCreated(Event):
    kind = "head.created"
    head_id: str
    basis: str | None


@dataclass(frozen=True, kw_only=True)
class FilesRestored(Event):
    kind = "files.restored"
    checkpoint_id: str
    restored: int
    deleted: int
    skipped: int


@dataclass(frozen=True, kw_only=True)
class IssueBound(Event):
    kind = "issue.bound"
    session_id: str
    issue_id: str | None


@dataclass(frozen=True, kw_only=True)
class HostAway(Event):
    kind = "host.away"
    session_id: str
    host_id: str
    name: str


@dataclass(frozen=True, kw_only=True)
class HostBack(Event):
    kind = "host.back"
    session_id: str
    host_id: str
    name: str


@dataclass(frozen=True, kw_only=True)
class SessionMoved(Event):
    kind = "session.moved"
    session_id: str
    from_host: str | None
    to_host: str
    user_id: str
