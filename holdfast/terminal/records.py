"""What host and client tell each other about processes: frozen records that travel as JSON."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from enum import StrEnum
from typing import Any, Self

from holdfast.domain import scrollback
from holdfast.terminal.errors import BadRequest

KEY_LENGTH_MAX = 200
COLUMNS_MAX = 1000
ROWS_MAX = 500
COMMAND_BYTES_MAX = 256 * 1024
NEWER_FIELDS = {
    "scrollback_lines": scrollback.LINES_DEFAULT,
    "below": "",
    "project": None,
    "unix_user": None,
    "stdin": None,
}


class Reason(StrEnum):
    """Why a process is over."""

    EXITED = "exited"
    SIGNALLED = "signalled"
    TIMEOUT = "timeout"
    WALLTIME = "walltime"
    MEMORY = "memory"
    CPU = "cpu"
    PIDS = "pids"
    DISK = "disk"
    CANCELLED = "cancelled"
    CAGE = "cage"
    LOST = "lost"


# Only these are failures of the run's surroundings; a program that exits 1 is not one of them.
FAILURES = {
    Reason.CAGE: "cage_spawn_failed",
    Reason.WALLTIME: "walltime_exceeded",
    Reason.MEMORY: "memory_exceeded",
    Reason.CPU: "cpu_exceeded",
    Reason.PIDS: "pids_exceeded",
    Reason.DISK: "disk_exceeded",
}


class ProcessState(StrEnum):
    """Where a process is in its life."""

    RUNNING = "running"
    SUSPENDED = "suspended"
    EXITED = "exited"


@dataclass(frozen=True, slots=True)
class Exit:
    """How a process ended: `code` for an exit, `signal` for a death by one, neither if lost."""

    reason: Reason
    code: int | None
    signal: int | None
    at_ms: int
    duration_ms: int
    output_bytes: int
    output_lines: int
    message: str = ""

    @property
    def failure(self) -> str | None:
        """`cage_spawn_failed`, `walltime_exceeded`, `memory_exceeded`, …, or None."""
        return FAILURES.get(self.reason)

    @classmethod
    def from_json(cls, raw: Mapping[str, Any]) -> Self:
        """The exit a JSON object describes."""
        return cls(**{**raw, "reason": Reason(raw["reason"])})


@dataclass(frozen=True, slots=True, kw_only=True)
class SpawnRequest:
    """A process to run once under `key`: a shell `command` or an `argv`, perhaps on a terminal.

    `cage` is the plain mapping of the project file; None runs without a cage. `walltime_s` counts
    like the cage's own and is for agents that have none. `env` adds to the host's short allow-list.
    `stdin` is a file of ours that a program without a terminal reads; None is an empty one.
    It runs in the folder `below` the root `cwd`, a real path that is opened once; the settings of
    `project` cannot be changed from a cage; a host of root runs it as `unix_user`.
    """

    key: str
    session_id: str
    command: str | None = None
    argv: tuple[str, ...] | None = None
    run_id: str | None = None
    cwd: str = "/"
    env: Mapping[str, str] = field(default_factory=dict)
    terminal: bool = False
    cols: int = 80
    rows: int = 24
    timeout_s: float | None = None
    walltime_s: float | None = None
    cage: Mapping[str, Any] | None = None
    label: str = ""
    scrollback_lines: int = scrollback.LINES_DEFAULT
    stdin: str | None = None
    below: str = ""
    project: str | None = None
    unix_user: str | None = None

    def __post_init__(self) -> None:
        """Refuse what could not be run, before anything is written to disk."""
        if not 0 < len(self.key) <= KEY_LENGTH_MAX:
            raise BadRequest(f"a key has 1 to {KEY_LENGTH_MAX} characters")
        if (self.command is None) == (self.argv is None) or self.argv == ():
            raise BadRequest("give either a command or an argv")
        words = [self.command or "", *(self.argv or ()), *self.env, *self.env.values()]
        if sum(len(word.encode()) for word in words) > COMMAND_BYTES_MAX:
            raise BadRequest(f"command and environment have at most {COMMAND_BYTES_MAX} bytes")
        check_size(self.cols, self.rows)
        if not scrollback.LINES_MIN <= self.scrollback_lines <= scrollback.LINES_MAX:
            bounds = f"{scrollback.LINES_MIN} to {scrollback.LINES_MAX}"
            raise BadRequest(f"a terminal keeps {bounds} lines")

    @classmethod
    def from_json(cls, raw: Mapping[str, Any]) -> Self:
        """The request a JSON object describes; unknown fields are errors."""
        unknown = set(raw) - {entry.name for entry in fields(cls)}
        if unknown or not {"key", "session_id"} <= set(raw):
            raise BadRequest(f"not a spawn request: {', '.join(sorted(unknown)) or 'key missing'}")
        argv = raw.get("argv")
        return cls(**{**raw, "argv": None if argv is None else tuple(argv)})

    def to_json(self) -> dict[str, Any]:
        """The request as a JSON object."""
        written = {**asdict(self), "env": dict(self.env)}
        for name, default in NEWER_FIELDS.items():
            # A host of an earlier release, still running, refuses fields it does not know.
            if written[name] == default:
                del written[name]
        return written


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessInfo:
    """One process as the host sees it now.

    `created` is True only in the answer to the spawn that started it. Output is addressed by `seq`,
    the number of bytes since the start; the ring holds `ring_start` to `seq`. `screen` is `exact`,
    `degraded` (no emulator: the ring is replayed) or `none` (no terminal).
    """

    key: str
    session_id: str
    run_id: str | None
    label: str
    command: str
    cwd: str
    terminal: bool
    cols: int
    rows: int
    state: ProcessState
    pid: int | None
    started_at_ms: int
    seq: int
    ring_start: int
    lines: int
    viewers: int
    idle: bool
    cage: str
    screen: str
    transcript: str
    exit: Exit | None = None
    created: bool = False

    @classmethod
    def from_json(cls, raw: Mapping[str, Any]) -> Self:
        """The record a JSON object describes."""
        over = raw.get("exit")
        exit_record = None if over is None else Exit.from_json(over)
        return cls(**{**raw, "state": ProcessState(raw["state"]), "exit": exit_record})


@dataclass(frozen=True, slots=True)
class Suspension:
    """What a suspend or resume did: the processes it found, by pid, each verified by its state."""

    keys: tuple[str, ...]
    pids: tuple[int, ...]
    verified: bool


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The whole screen as of `seq`: bytes for a freshly reset terminal of this size."""

    seq: int
    data: bytes
    cols: int
    rows: int
    lines: int
    exact: bool


@dataclass(frozen=True, slots=True)
class Output:
    """Bytes that follow position `seq`."""

    seq: int
    data: bytes


@dataclass(frozen=True, slots=True)
class Throttled:
    """Output from `from_seq` to `to_seq` was skipped; a snapshot follows."""

    from_seq: int
    to_seq: int

    @property
    def dropped_bytes(self) -> int:
        """How much the viewer did not see."""
        return self.to_seq - self.from_seq


@dataclass(frozen=True, slots=True)
class Resized:
    """Another client changed the size of the terminal."""

    cols: int
    rows: int


@dataclass(frozen=True, slots=True)
class Closed:
    """The process is over and all its output was sent; the last thing an attachment yields."""

    exit: Exit


ViewerEvent = Snapshot | Output | Throttled | Resized | Closed


@dataclass(frozen=True, slots=True)
class HostEvent:
    """Something that happened to a process, told to all who listen.

    `kind` is `spawned`, `exited`, `idle` (no input or output for 30 minutes), `active` (again) or
    `throttled` (with `details` from_seq, to_seq).
    """

    kind: str
    info: ProcessInfo
    details: Mapping[str, Any] = field(default_factory=dict)


def check_size(cols: int, rows: int) -> None:
    """Raise BadRequest for a size no terminal has."""
    if not (1 <= cols <= COLUMNS_MAX and 1 <= rows <= ROWS_MAX):
        raise BadRequest(f"a terminal has 1 to {COLUMNS_MAX} columns and 1 to {ROWS_MAX} rows")
