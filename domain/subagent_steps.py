"""What travels between a run and its subagents."""

from __future__ import annotations

from dataclasses import dataclass

from domain.session_start import RunProgress


@dataclass(frozen=True, kw_only=True)
class SubagentStart:
    """The argument of a subagent's workflow."""

    session_id: str
    run_id: str
    tool_call_id: str
    name: str
    parent_path: str
    invocation_id: str
    progress: RunProgress | None = None


@dataclass(frozen=True, kw_only=True)
class SubagentBegun:
    """The subagent as the project file has it."""

    agent_path: str
    max_steps: int
    walltime_s: float | None = None


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
