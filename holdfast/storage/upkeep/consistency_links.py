"""Every reference between rows that must name something, and what it is called when it does not."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import ColumnElement, Table, select

from holdfast.storage.database.rows import table
from holdfast.storage.database.tables import (
    Call,
    Message,
    Project,
    Run,
    SessionRow,
    SubagentInvocation,
    Supersession,
    ToolCallRow,
)
from holdfast.storage.database.tables_history import (
    Blob,
    Checkpoint,
    Derivation,
    Head,
    PromptEdit,
    PtyTranscript,
    TreeBundle,
)
from holdfast.storage.database.tables_library import Alias, Chat, Issue

_sessions, _heads, _runs, _blobs = table(SessionRow), table(Head), table(Run), table(Blob)
_messages, _checkpoints, _calls = table(Message), table(Checkpoint), table(Call)
_derivations, _supersessions = table(Derivation), table(Supersession)
_invocations, _tools = table(SubagentInvocation), table(ToolCallRow)


# A purged session keeps what its forks read: messages and heads, but not what made the heads.
_whole = (
    ~select(_sessions.c.id)
    .where(_sessions.c.id == _heads.c.session_id, _sessions.c.purged.is_(True))
    .exists()
)
# A call names its answer before it has one; only one that is done must have it.
_answered = _calls.c.status == "done"


@dataclass(frozen=True)
class Link:
    """`source.column` names a row of `target`; `session` says whose row it is."""

    issue: str
    source: Table
    column: str
    target: Table
    key: str = "id"
    session: str = "session_id"
    only: ColumnElement[bool] | None = None

    def words(self, count: int) -> str:
        """How many rows name what is missing, as a sentence."""
        rows, name = ("1 row", "names") if count == 1 else (f"{count} rows", "name")
        return (
            f"{rows} of {self.source.name} {name} a row of {self.target.name} that is missing"
            f" ({self.column}); kept as {'it is' if count == 1 else 'they are'}"
        )


LINKS = (
    Link("current-head-missing", _sessions, "current_head", _heads, session="id"),
    Link("current-checkpoint-missing", _sessions, "current_checkpoint", _checkpoints, session="id"),
    Link("active-run-missing", _sessions, "active_run", _runs, session="id"),
    Link("session-project-missing", _sessions, "project_id", table(Project), session="id"),
    Link("session-issue-missing", _sessions, "bound_issue", table(Issue), session="id"),
    Link("parent-session-missing", _sessions, "parent_session_id", _sessions, session="id"),
    Link("head-session-missing", _heads, "session_id", _sessions),
    Link("head-basis-missing", _heads, "basis", _heads),
    Link("head-snapshot-missing", _heads, "checkpoint_id", _checkpoints, only=_whole),
    Link("head-run-missing", _heads, "run_id", _runs, only=_whole),
    Link("head-state-ref-missing", _heads, "state_ref", _blobs),
    Link("head-final-ref-missing", _heads, "final_ref", _messages, only=_whole),
    Link(
        "derivation-source-session-missing",
        _derivations,
        "source_session",
        _sessions,
        session="target_session",
    ),
    Link(
        "derivation-target-session-missing",
        _derivations,
        "target_session",
        _sessions,
        session="target_session",
    ),
    Link(
        "derivation-source-head-missing",
        _derivations,
        "source_head",
        _heads,
        session="target_session",
    ),
    Link("checkpoint-session-missing", _checkpoints, "session_id", _sessions),
    Link("checkpoint-head-missing", _checkpoints, "head_id", _heads),
    Link("prompt-edit-checkpoint-missing", table(PromptEdit), "checkpoint_id", _checkpoints),
    Link("message-session-missing", _messages, "session_id", _sessions),
    Link("supersession-message-missing", _supersessions, "message_id", _messages, key="number"),
    Link("run-session-missing", _runs, "session_id", _sessions),
    Link("call-session-missing", _calls, "session_id", _sessions),
    Link("call-run-missing", _calls, "run_id", _runs),
    Link("call-request-missing", _calls, "request_ref", _blobs),
    Link("call-response-missing", _calls, "message_id", _messages, only=_answered),
    Link("tool-call-run-missing", _tools, "run_id", _runs),
    Link("bundle-blob-missing", table(TreeBundle), "blob", _blobs, key="tree"),
    Link("transcript-run-missing", table(PtyTranscript), "run_id", _runs),
    Link("tool-output-missing", _tools, "output_ref", _blobs),
    Link("invocation-caller-missing", _invocations, "session_id", _sessions),
    Link("invocation-run-missing", _invocations, "run_id", _runs),
    Link("alias-target-missing", table(Alias), "session_id", _sessions, key="name"),
    Link("chat-session-missing", table(Chat), "session_id", _sessions),
)
