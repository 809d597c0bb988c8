"""A tool call with everything it runs in, and what runs it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from holdfast.agent.conversation import ToolCall
from holdfast.agent.tools.offering import Caller
from holdfast.agent.tools.outcome import ToolOutcome
from holdfast.agent.tools.tool_spec import ToolSpec
from holdfast.domain.permissions.rules import Effect, Rule
from holdfast.domain.project_file import AgentSpec, ProjectFile
from holdfast.storage.database.tables import SessionRow, ToolCallRow
from holdfast.storage.database.tables_approvals import Approval
from holdfast.storage.hosts.executions import Claim


@dataclass(frozen=True)
class Verdict:
    """What becomes of a call, why, and the approval that it waits or waited for."""

    effect: Effect = Effect.ALLOW
    rule: Rule | None = None
    approval: Approval | None = None
    uncaged: bool = False  # allowed by somebody where no cage can be built: made without one


ALLOWED = Verdict()


@dataclass(frozen=True)
class ToolRequest:
    """A call of the model, and the session and agent that make it."""

    call: ToolCallRow
    session: SessionRow
    project_file: ProjectFile
    agent: AgentSpec
    invocation_id: str | None
    repeated: bool
    claim: Claim | None = None  # of a tool that starts a process
    deaths: int = 0  # workers that ended while they made this call
    verdict: Verdict = ALLOWED
    took_slot: bool = False  # its session had waited without one

    @property
    def waits_for_slot(self) -> bool:
        """Whether it may be made, or closed, once its session has a slot again."""
        return self.session.without_slot and self.verdict.effect is not Effect.ASK

    @property
    def caller(self) -> Caller:
        """The agent as the offer of tools sees it."""
        return caller_of(self.session, self.project_file, self.call.caller)


@dataclass(frozen=True)
class Tool:
    """A spec, and what runs its calls; `run` takes the arguments of the spec."""

    spec: ToolSpec
    run: Callable[[ToolRequest, Any], Awaitable[ToolOutcome]]
    diff: Callable[[ToolRequest, Any], Awaitable[str | None]] | None = None  # what it would change


def caller_of(session: SessionRow, project_file: ProjectFile, agent_path: str) -> Caller:
    """An agent of the session, as far as tools depend on it."""
    agent = project_file.agent(agent_path)
    return Caller(
        tools=agent.tools,
        root=agent_path == "primary",
        has_subagents=bool(agent.subagents),
        bound_issue=session.bound_issue is not None,
        remembers=project_file.remembering.enabled,
    )


def asked(call: ToolCallRow) -> ToolCall:
    """A stored call as the model made it."""
    invalid = call.input.get("invalid_arguments")
    return ToolCall(call.provider_call_id, call.tool_name, call.input, invalid)
