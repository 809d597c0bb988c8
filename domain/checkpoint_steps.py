"""What the workflow tells the steps that pause, resume and roll back, and what they answer."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, kw_only=True)
class PauseStep:
    """Make a checkpoint and free the slot."""

    session_id: str
    checkpoint_id: str
    run_id: str | None = None
    created_by: str = "operator"  # operator | model | compaction | budget
    reason: str = ""
    user_id: str = ""
    command_id: str = ""
    compaction_id: str | None = None
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
    checkpoint_id: str
    user_id: str = ""
    command_id: str = ""
    nothing_left: bool = False


@dataclass(frozen=True, kw_only=True)
class Resumed:
    """`running` with the run that goes on, or `idle`."""

    state: str
    run_id: str | None = None
    prompts_edited: int = 0


@dataclass(frozen=True, kw_only=True)
class RollBackStep:
    """Go back to a checkpoint."""

    session_id: str
    checkpoint_id: str
    user_id: str = ""
    command_id: str = ""


@dataclass(frozen=True, kw_only=True)
class RolledBack:
    """What no longer counts, and which run and subagents were stopped with it."""

    state: str
    messages_superseded: int = 0
    cancelled_run: str | None = None
    killed_invocations: list[str] = field(default_factory=list)


@dataclass(frozen=True, kw_only=True)
class ProcessesStep:
    """The processes of a run, or of the whole session when there is no run."""

    session_id: str
    run_id: str | None = None


@dataclass(frozen=True, kw_only=True)
class ProcessesDone:
    """How many processes were stopped, continued or ended."""

    processes: int = 0
    verified: bool = True


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
class RestoreStep:
    """Bring back the files of a checkpoint; with `undo`, those from before the last restore."""

    session_id: str
    checkpoint_id: str
    command_id: str = ""
    undo: bool = False


@dataclass(frozen=True, kw_only=True)
class Restored:
    """Paths that were brought back and deleted, and what could not be undone."""

    restored: list[str] = field(default_factory=list)
    deleted: list[str] = field(default_factory=list)
    not_undone: list[str] = field(default_factory=list)

    def files(self) -> dict[str, list[str]]:
        """The answer as the wire shows it."""
        return {
            "restored": self.restored,
            "deleted": self.deleted,
            "not_undone": self.not_undone,
        }
