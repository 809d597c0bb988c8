"""What a session's workflow is started with, and what it carries when it rolls over."""

from __future__ import annotations

from dataclasses import dataclass, field

from holdfast.domain.commands import Answer
from holdfast.domain.host_steps import HostRef
from holdfast.domain.steps import PendingCall


@dataclass
class RunProgress:
    """Where the active run stands, between two steps."""

    run_id: str
    step: int = 0
    max_steps: int = 200
    pending: list[PendingCall] = field(default_factory=list)
    answered: bool = False  # the model gave its last answer; only the end is left
    compactions: int = 0  # how often its context was compacted
    recent: list[str] = field(default_factory=list)  # fingerprints of the last calls


@dataclass
class Carried:
    """Everything that must survive a roll-over."""

    state: str
    project_id: str
    operator: str
    title: str
    run: RunProgress | None = None
    checkpoint_id: str | None = None
    answers: dict[str, Answer] = field(default_factory=dict)
    futile_compactions: int = 0
    compact_every_minutes: int | None = None
    compaction_due: bool = False  # something ran since the last compaction on schedule
    host: HostRef | None = None  # where its files and processes are
    waiting: bool = False  # the database may hold messages that begin a run when it is idle
    steered: bool = False  # … and words for the next model call of the active run


@dataclass(frozen=True)
class SessionStart:
    """The argument of the session's workflow. Without `carried` it loads itself."""

    session_id: str
    carried: Carried | None = None
