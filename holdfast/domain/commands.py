"""What an operator may ask of a session, as it travels to its workflow: ids and small words."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, kw_only=True)
class Command:
    """One request; the same `command_id` is answered once and repeated after."""

    command_id: str = ""
    user_id: str = ""


# What becomes of a message to a session that is busy.
REJECT, QUEUE, STEER, INTERRUPT = WHEN_BUSY = ("reject", "queue", "steer", "interrupt")


@dataclass(frozen=True, kw_only=True)
class NewMessage(Command):
    """Take the staged message `message_id` and run it."""

    message_id: str = ""
    content: str | None = None  # only from the Temporal UI, where nothing could be staged
    when_busy: str = REJECT


@dataclass(frozen=True, kw_only=True)
class Cancel(Command):
    """Stop the active run; `run_id` None means whichever is active."""

    run_id: str | None = None


@dataclass(frozen=True, kw_only=True)
class Retry(Command):
    """Run the last run's message again, if that run failed or was cancelled."""

    run_id: str = ""


@dataclass(frozen=True, kw_only=True)
class Pause(Command):
    """Make a checkpoint; the reason lies in the staged row `checkpoint_id` when it is long."""

    checkpoint_id: str = ""
    reason: str = ""


@dataclass(frozen=True, kw_only=True)
class Resume(Command):
    """Go on from the queue, or from the checkpoint that is the pause point."""

    checkpoint_id: str | None = None
    compaction: str | None = None  # approve | reject
    review_id: str | None = None  # blob with the operator's summary and message ids
    queued_run: str | None = None  # by itself: this run from the queue, and nothing else
    message_id: str | None = None  # words of the operator, staged
    message: str | None = None  # only from the Temporal UI, where nothing could be staged


@dataclass(frozen=True, kw_only=True)
class RollBack(Command):
    """Go back to a checkpoint, or to right before a message of the operator.

    With `message_id`, `checkpoint_id` names the checkpoint that is made there.
    """

    checkpoint_id: str = ""
    message_id: str | None = None
    restore_files: bool = False
    undo_restore: bool = False  # bring back the files as they were before the last restore


@dataclass(frozen=True, kw_only=True)
class Compact(Command):
    """Compact the context now."""

    compaction_id: str = ""
    strategy: str | None = None
    agent_path: str = "primary"
    focus_id: str | None = None  # blob with what the summary should keep above all


@dataclass(frozen=True, kw_only=True)
class Move(Command):
    """Go on on another host, which must have the session's folder."""

    host_id: str = ""


@dataclass(frozen=True, kw_only=True)
class Answer:
    """What a command came to."""

    state: str
    run_id: str | None = None
    message_id: str | None = None
    checkpoint_id: str | None = None
    compaction_id: str | None = None
    queued: bool = False
    waiting: bool = False  # accepted, and kept until the session comes to it
    reason: str | None = None
    messages_superseded: int = 0
    files: dict[str, list[str]] = field(default_factory=dict)
