"""What travels through Temporal when a memory follows its sources: ids and small numbers only."""

from __future__ import annotations

from dataclasses import dataclass, field

from holdfast.domain.memory import SyncReport

ASK, SYNC = "ask", "sync"  # a signal that nobody waits for, and an update that is answered
ID_PREFIX = "memory-"


@dataclass(frozen=True, kw_only=True)
class MemoryStart:
    """Whose memory, and whether the first round builds it anew."""

    project_id: str
    force: bool = False


@dataclass(frozen=True, kw_only=True)
class MemoryRequest:
    """One more look at the sources is wanted."""

    force: bool = False


@dataclass(frozen=True, kw_only=True)
class MemorySyncStep:
    """Bring one project's index to what its sources are now."""

    project_id: str
    force: bool = False


@dataclass(frozen=True, kw_only=True)
class MemoryPlaceStep:
    """Find the machines that may build one project's index."""

    project_id: str


@dataclass(frozen=True, kw_only=True)
class MemoryPlaced:
    """The queues of those machines, the one that built it last first; none: any worker may."""

    queues: list[str] = field(default_factory=list)


@dataclass(frozen=True, kw_only=True)
class MemoryAnswer:
    """What a round came to; without a report it goes on."""

    report: SyncReport | None = None


def workflow_id(project_id: str) -> str:
    """The id of the one workflow that may write this project's index."""
    return f"{ID_PREFIX}{project_id}"
