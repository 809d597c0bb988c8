"""What `.holdfast/project.yaml` may say. Unknown keys are errors."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from holdfast.domain.cages.destinations import ENTRIES_MAX, Destinations
from holdfast.domain.memory import MemorySettings
from holdfast.domain.permissions.rules import Effect, Rule
from holdfast.domain.tools import ROOT_ONLY_TOOLS

PATTERN_CHARS_MAX, PERMISSIONS_MAX = 1000, 200
PROJECT_NAME = r"^[a-z0-9][a-z0-9-]{0,62}[a-z0-9]$"


class Strict(BaseModel):
    """A frozen model that takes no key it does not know."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class ToolSwitch(Strict):
    """Whether an agent may use one tool."""

    enabled: bool = True


class Permission(Strict):
    """A rule about calls of a tool, a kind of tool or `*`: see docs/approvals.md."""

    tool: str = Field(min_length=1, max_length=200)
    pattern: str | None = Field(default=None, min_length=1, max_length=PATTERN_CHARS_MAX)
    effect: Literal["allow", "ask", "deny"]

    @property
    def rule(self) -> Rule:
        """The same, as calls are judged by it."""
        return Rule(tool=self.tool, pattern=self.pattern, effect=Effect(self.effect))


class CompactionSettings(Strict):
    """When the context is full, and what is done then."""

    strategy: Literal["drop", "summarize", "delegate", "checkpoint"] = "summarize"
    upper: float = Field(default=0.85, gt=0, le=1)
    lower: float = Field(default=0.60, gt=0, le=1)
    keep_turns: int = Field(default=2, ge=1, le=100)
    delegate_to: str | None = Field(default=None, max_length=1000)  # a subagent, or command:…
    observers: list[str] = Field(default_factory=list, max_length=8)
    schedule_minutes: int | None = Field(default=None, ge=1)

    @model_validator(mode="after")
    def check_order(self) -> CompactionSettings:
        """The lower mark lies below the upper one."""
        if self.lower >= self.upper:
            raise ValueError("compaction.lower must be less than compaction.upper")
        return self


class CageFiles(Strict):
    """Which paths a caged process sees beside its working directory."""

    read_write: list[str] = Field(default_factory=list, max_length=64)
    read_only: list[str] = Field(default_factory=list, max_length=64)
    hidden: list[str] = Field(default_factory=list, max_length=64)


class CageNetwork(Strict):
    """Which hosts a caged process may reach, and which private networks they may be in."""

    allow: list[str] = Field(min_length=1, max_length=ENTRIES_MAX)
    private: list[str] = Field(default_factory=list, max_length=ENTRIES_MAX)

    @model_validator(mode="after")
    def check_entries(self) -> CageNetwork:
        """Every entry can be read."""
        Destinations.parse(self.model_dump())
        return self


class CageSettings(Strict):
    """What a caged process may touch and how much it may use."""

    fs: CageFiles = Field(default_factory=CageFiles)
    net: bool | Literal["host"] | CageNetwork = False
    env: list[str] = Field(default_factory=list, max_length=128)
    memory_mb: int | None = Field(default=None, ge=16, le=2**24)
    pids: int | None = Field(default=None, ge=1, le=2**22)
    walltime_s: float | None = Field(default=None, gt=0)
    cpu_s: int | None = Field(default=None, ge=1)
    ptrace: bool = False  # debuggers may attach, to the programs of this cage only


class AgentSpec(Strict):
    """One agent of the tree; its subagents are the only ones it may call."""

    model: str = Field(default="default", min_length=1, max_length=200)
    system_prompt: str | None = Field(default=None, max_length=200_000)
    tools: dict[str, ToolSwitch] = Field(default_factory=lambda: {"*": ToolSwitch()})
    cage: CageSettings | Literal["disabled"] = Field(default_factory=CageSettings)
    terminal: bool = False
    subagents: dict[str, AgentSpec] = Field(default_factory=dict, max_length=64)
    description: str | None = Field(default=None, max_length=2000)
    max_steps: int = Field(default=200, ge=1, le=100_000)
    max_output_tokens: int | None = Field(default=None, ge=1)
    compaction: CompactionSettings = Field(default_factory=CompactionSettings)
    permissions: list[Permission] = Field(default_factory=list, max_length=PERMISSIONS_MAX)
    stuck_guard: bool = True  # pause when the same calls have the same results again and again

    @field_validator("subagents")
    @classmethod
    def check_names(cls, subagents: dict[str, AgentSpec]) -> dict[str, AgentSpec]:
        """Names fit into an agent path, and root-only tools stay with the root."""
        for name, spec in subagents.items():
            if not name.replace("-", "").replace("_", "").isalnum() or len(name) > 64:
                raise ValueError(f"subagent name {name!r}: letters, digits, - and _ only")
            for tool in ROOT_ONLY_TOOLS:
                if tool in spec.tools and spec.tools[tool].enabled:
                    raise ValueError(f"tool {tool!r} is for the root agent only, not for {name!r}")
        return subagents


class Limits(Strict):
    """Bounds of the whole project."""

    running_sessions: int = Field(default=4, ge=1, le=1000)
    max_steps: int | None = Field(default=None, ge=1, le=100_000)
    max_cost_usd: float | None = Field(default=None, gt=0)
    max_cost_usd_per_run: float | None = Field(default=None, gt=0)
    subagents: int = Field(default=8, ge=1, le=8)


class ProjectFile(Strict):
    """The whole file, with its defaults."""

    version: Literal[1] = 1
    project: str = Field(pattern=PROJECT_NAME)
    description: str | None = Field(default=None, max_length=280)
    primary: AgentSpec = Field(default_factory=AgentSpec)
    limits: Limits = Field(default_factory=Limits)
    on_crash: Literal["resume", "fail"] = "resume"
    auto_resume: bool = False
    memory: MemorySettings | None = None  # None: the defaults, switched on

    @property
    def remembering(self) -> MemorySettings:
        """The settings of the memory that all agents of the project share."""
        return self.memory or MemorySettings()

    def agent(self, path: str) -> AgentSpec:
        """The agent at a path such as `primary` or `primary.subagents.researcher`."""
        spec = self.primary
        names = path.split(".")[1:]
        for marker, name in zip(names[::2], names[1::2], strict=True):
            if marker != "subagents" or name not in spec.subagents:
                raise KeyError(path)
            spec = spec.subagents[name]
        return spec

    def rules(self, path: str) -> list[Rule]:
        """The rules for an agent: its own, and what its callers are asked for or denied."""
        spec, rules = self.primary, [one.rule for one in self.primary.permissions]
        for name in path.split(".")[2::2]:
            spec = spec.subagents[name]
            inherited = [rule for rule in rules if rule.effect is not Effect.ALLOW]
            rules = [*inherited, *(one.rule for one in spec.permissions)]
        return rules


def subagent_path(parent: str, name: str) -> str:
    """The agent path of `parent`'s subagent `name`."""
    return f"{parent}.subagents.{name}"
