"""What travels between a run and its subagents."""

from __future__ import annotations

from dataclasses import dataclass

from holdfast.domain.session_start import RunProgress

SUBAGENT_LIMIT = "subagent_limit_exceeded"
CAGE_SPAWN_FAILED = "cage_spawn_failed"
GATE_SIGNAL = "gate"
PAUSE_SIGNAL = "subagent_pause"


@dataclass(frozen=True, kw_only=True)
class Gate:
    """Whether steps may start, told down the tree; a later `seq` wins, whatever arrives first."""

    seq: int = 0
    is_open: bool = True
    request_id: str = ""  # the pause of a subagent that this answers


@dataclass(frozen=True, kw_only=True)
class SubagentPause:
    """A subagent asks its session to pause."""

    request_id: str
    created_by: str
    reason: str = ""
    tool_call_id: str | None = None


@dataclass(frozen=True, kw_only=True)
class SubagentBegun:
    """The subagent as the project file has it; `busy` when the run has no place for it now."""

    agent_path: str = ""
    max_steps: int = 200
    walltime_s: float | None = None
    busy: bool = False


@dataclass(frozen=True, kw_only=True)
class SubagentStart:
    """The argument of a subagent's workflow. With `progress` it goes on after a roll-over."""

    session_id: str
    run_id: str
    tool_call_id: str
    name: str
    parent_path: str
    invocation_id: str
    gate: Gate = Gate()
    begun: SubagentBegun | None = None
    progress: RunProgress | None = None
    walltime_left_s: float | None = None
    futile_compactions: int = 0


@dataclass(frozen=True, kw_only=True)
class SubagentEnd:
    """How the subagent ended."""

    session_id: str
    run_id: str
    tool_call_id: str
    invocation_id: str
    name: str
    state: str  # done | failed | killed
    error: str | None = None


@dataclass(frozen=True, kw_only=True)
class SubagentResult:
    """What its caller hears of it; the words are in the tool call's result."""

    state: str
    limit_exceeded: str | None = None  # what the operator reads
    cage_failure: str | None = None  # the same
