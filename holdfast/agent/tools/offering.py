"""Which tools an agent is offered, and which of its calls are refused before they run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Protocol

from holdfast.agent.tools.specs import ALL, BY_NAME
from holdfast.agent.tools.tool_spec import Need, ToolSpec

UNBOUND = (
    "No issue is bound to this session, so there is nothing to keep todos or a status on. "
    "Ask the operator to bind an issue to this session, then try again."
)


class Switch(Protocol):
    """The part of a project file's tool entry that matters here."""

    @property
    def enabled(self) -> bool:
        """Whether the agent may use the tool."""


@dataclass(frozen=True, kw_only=True)
class Caller:
    """An agent that calls tools, as far as they depend on it."""

    tools: Mapping[str, Switch]
    root: bool
    has_subagents: bool
    bound_issue: bool
    remembers: bool

    def is_offered(self, spec: ToolSpec) -> bool:
        """Whether the model is told about the tool."""
        met = {None: True, Need.SUBAGENTS: self.has_subagents, Need.MEMORY: self.remembers}
        may = self.root or not spec.root_only
        return may and met[spec.needs] and enabled(self.tools, spec.name)


def enabled(agent_tools: Mapping[str, Switch], name: str) -> bool:
    """Whether the agent's tool map switches `name` on: by its own entry, else by `"*"`."""
    switch = agent_tools.get(name, agent_tools.get("*"))
    return switch is not None and switch.enabled


def offered(caller: Caller) -> list[ToolSpec]:
    """The tools to tell the model about, always in the same order so that prompts stay cached."""
    return [
        replace(spec, description=f"{spec.description} {UNBOUND}")
        if spec.needs_issue and not caller.bound_issue
        else spec
        for spec in ALL
        if caller.is_offered(spec)
    ]


def refusal_at_dispatch(name: str, caller: Caller) -> str | None:
    """Why this call may not run, in words for the model; None when it may."""
    spec = BY_NAME.get(name)
    if spec is None:
        return f"There is no tool {name[:80]!r}. Use one of the tools you were offered."
    if spec.root_only and not caller.root:
        return f"The tool {name!r} is for the root agent only; tell your caller what you need."
    if not caller.is_offered(spec):
        return f"The tool {name!r} is disabled for this agent."
    if spec.needs_issue and not caller.bound_issue:
        return UNBOUND
    return None
