"""What the workflow and its steps tell each other of hosts and of calls that were lost."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, kw_only=True)
class HostRef:
    """A host as a session's workflow knows it."""

    id: str
    name: str
    task_queue: str
    lost_after_s: int = 120  # so long a step waits for it


@dataclass(frozen=True, kw_only=True)
class PlaceStep:
    """Which host the session has; unless `only_look`, one that it gets now.

    With `host_id` it is that host, whatever the session has.
    """

    session_id: str
    only_look: bool = False
    host_id: str | None = None


@dataclass(frozen=True, kw_only=True)
class Placed:
    """The session's host, or those that must be asked whether they have its folder."""

    host: HostRef | None = None
    candidates: list[HostRef] = field(default_factory=list)
    folder: str = ""
    why: str = ""  # what the hosts that are known do instead


@dataclass(frozen=True, kw_only=True)
class TakeStep:
    """Ask the worker of a host to take the session, or to say only whether it could."""

    session_id: str
    only_look: bool = False


@dataclass(frozen=True, kw_only=True)
class LostStep:
    """A tool call whose host took no step of it in time."""

    session_id: str
    tool_call_id: str


@dataclass(frozen=True, kw_only=True)
class LostCall:
    """Whether the call is over now; if not, its host is there and may be asked again."""

    ended: bool
    failed: bool = True


@dataclass(frozen=True, kw_only=True)
class MoveStep:
    """Bind the session to another host, which has its folder."""

    session_id: str
    host_id: str
    user_id: str = ""
