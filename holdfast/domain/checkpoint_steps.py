"""What the steps that pause, resume, roll back and compare are told, and what they answer."""

from __future__ import annotations

from dataclasses import dataclass, field

# The update of the workflow that compares files with how they were.
SHOW_CHANGES = "show"


@dataclass(frozen=True, kw_only=True)
class PauseStep:
    """Make a checkpoint and free the slot."""

    session_id: str
    checkpoint_id: str
    run_id: str | None = None
    created_by: str = "operator"  # operator | model | compaction | budget
    reason: str = ""
    tool_call_id: str | None = None  # the model's own words are in this call


@dataclass(frozen=True, kw_only=True)
class Paused:
    """The checkpoint that is the pause point now."""

    checkpoint_id: str
    state: str


@dataclass(frozen=True, kw_only=True)
class ResumeStep:
    """Go on from the pause point; `nothing_left` when the loop has no step to take."""

    session_id: str
    checkpoint_id: str | None
    command_id: str = ""
    nothing_left: bool = False
    message_id: str | None = None  # words of the operator, staged
    user_id: str = ""
    content: str | None = None  # only from the Temporal UI, where nothing could be staged


@dataclass(frozen=True, kw_only=True)
class Resumed:
    """`running` with the run that goes on, or `idle`."""

    state: str
    run_id: str | None = None
    steered: bool = False  # words wait for the model's next call


@dataclass(frozen=True, kw_only=True)
class RollBackStep:
    """Go back to a checkpoint, and bring its files back if asked.

    With `message_id` the checkpoint is made first, right before that message.
    """

    session_id: str
    checkpoint_id: str
    message_id: str | None = None
    user_id: str = ""
    command_id: str = ""
    restore_files: bool = False
    undo_restore: bool = False


@dataclass(frozen=True, kw_only=True)
class RolledBack:
    """What no longer counts, and which run and subagents were stopped with it."""

    state: str
    messages_superseded: int = 0
    cancelled_run: str | None = None
    killed_invocations: list[str] = field(default_factory=list)
    files: dict[str, list[str]] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class TreeStep:
    """Save the working directory for a checkpoint, or as it was before a run."""

    session_id: str
    checkpoint_id: str | None = None
    run_id: str | None = None


@dataclass(frozen=True, kw_only=True)
class TreeSaved:
    """The snapshot, or None with the reason why there is none."""

    tree: str | None = None
    note: str = ""


@dataclass(frozen=True, kw_only=True)
class ChangesStep:
    """Compare the folder now with how it was: at the session's `start`, before its last `run`, or
    at a checkpoint. With `diff` the answer is a unified diff, of one `path` or of all."""

    session_id: str
    since: str = "start"
    checkpoint_id: str | None = None
    diff: bool = False
    path: str | None = None


@dataclass(frozen=True, kw_only=True)
class ChangesFound:
    """The blob with the answer; nothing refers to it, so the orphan sweep deletes it in a day."""

    blob_id: str


@dataclass(frozen=True)
class ChangesStart:
    """Whose changes the workflow shows."""

    session_id: str


def changes_workflow_id(session_id: str) -> str:
    """The id of the workflow that shows the changes of a session."""
    return f"changes-{session_id}"
