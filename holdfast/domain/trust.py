"""What a project file allows beyond another one, and that file without it.

Whoever works in a folder can write its project file, the model included. So a file is compared
with the one that the operator trusted last, or with the defaults, and only what it allows no
further than that one is in force before the operator has agreed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal, TypeVar

from pydantic import BaseModel

from holdfast.domain.cages import defaults as cage_defaults
from holdfast.domain.project_file import (
    AgentSpec,
    CageFiles,
    CageNetwork,
    CageSettings,
    CompactionSettings,
    Limits,
    Permission,
    ProjectFile,
    ToolSwitch,
)
from holdfast.domain.tools import ROOT_ONLY_TOOLS

COMMAND = "command:"
EVERY_TOOL = "*"
# A rule answers what of a wanted value is in force beside the trusted one.
Rule = Callable[[Any, Any], Any]
Network = bool | Literal["host"] | CageNetwork
Model = TypeVar("Model", bound=BaseModel)
Item = TypeVar("Item")


@dataclass(frozen=True)
class Loosening:
    """One value that allows more than the trusted file does."""

    area: str
    key: str
    trusted: Any
    wanted: Any

    def as_json(self) -> dict[str, Any]:
        """As it is stored and sent."""
        return {
            "area": self.area,
            "key": self.key,
            "trusted": plain(self.trusted),
            "wanted": plain(self.wanted),
        }


@dataclass(frozen=True, slots=True)
class ProjectDefaults:
    """What a project has that says nothing: as config.toml of this server has it."""

    running_sessions: int = 4
    memory_mb: int = cage_defaults.MEMORY_MB
    pids: int = cage_defaults.PIDS


DEFAULTS = ProjectDefaults()


@dataclass
class Comparison:
    """The wanted file as far as the trusted one goes, and what was left out of it."""

    in_force: ProjectFile
    loosenings: list[Loosening] = field(default_factory=list)

    @property
    def areas(self) -> list[str]:
        """The areas of what was left out, each once."""
        return list(dict.fromkeys(one.area for one in self.loosenings))


def compare(
    wanted: ProjectFile, trusted: ProjectFile | None, defaults: ProjectDefaults = DEFAULTS
) -> Comparison:
    """Compare with the file that was trusted last; with the defaults when none was.

    A limit that a file does not name is the server's, so naming a larger one is looser.
    """
    base = trusted or ProjectFile(project=wanted.project)
    found: list[Loosening] = []
    agents = _Agents(_cage_rules(defaults), found)
    primary = agents.compare(wanted.primary, base.primary, "primary")
    limits = _ruled(wanted.limits, base.limits, LIMIT_RULES, "limits", found)
    whole = _ruled(wanted, base, {}, "", found)
    return Comparison(whole.model_copy(update={"primary": primary, "limits": limits}), found)


def plain(value: Any) -> Any:
    """The value as JSON has it."""
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json")
    if isinstance(value, list):
        return [plain(one) for one in value]
    if isinstance(value, Mapping):
        return {key: plain(one) for key, one in value.items()}
    return value


def lowest(wanted: Any, trusted: Any) -> Any:
    """The smaller limit; None is no limit."""
    if wanted is None or trusted is None:
        return trusted if wanted is None else wanted
    return min(wanted, trusted)


def at_most_default(wanted: int | None, trusted: int | None, *, default: int) -> int | None:
    """The smaller limit, where saying nothing means `default`."""
    return wanted if (wanted or default) <= (trusted or default) else trusted


def network_trusted(wanted: Network, trusted: Network) -> Network:
    """The wanted network as far as the trusted one goes: off, named hosts, public ones, all."""
    if wanted is False or trusted == "host":
        return wanted
    if trusted is False or not isinstance(wanted, CageNetwork):
        return trusted
    if trusted is True:
        return CageNetwork(allow=wanted.allow)
    assert isinstance(trusted, CageNetwork), "the only kind that is left"
    allow = those_trusted(wanted.allow, trusted.allow)
    private = those_trusted(wanted.private, trusted.private)
    return CageNetwork(allow=allow, private=private) if allow else False


def unchanged(_: Any, trusted: Any) -> Any:
    """Any other value than the trusted one counts as looser."""
    return trusted


def only_if_trusted(wanted: bool, trusted: bool) -> bool:
    """On only where it was on."""
    return wanted and trusted


def those_trusted(wanted: list[str], trusted: list[str]) -> list[str]:
    """The wanted entries that were there before."""
    return [one for one in wanted if one in trusted]


def and_those_trusted(wanted: list[Item], trusted: list[Item]) -> list[Item]:
    """The wanted entries, and those that were there before."""
    return [*wanted, *(one for one in trusted if one not in wanted)]


def no_new_command(wanted: str | None, trusted: str | None) -> str | None:
    """A subagent's name is free to choose; a command is a program."""
    return trusted if wanted is not None and wanted.startswith(COMMAND) else wanted


def tools_trusted(
    wanted: Mapping[str, ToolSwitch], trusted: Mapping[str, ToolSwitch]
) -> dict[str, ToolSwitch]:
    """The wanted switches, off for every tool that was off."""
    names = [name for name in (*wanted, *trusted, EVERY_TOOL) if _is_on(wanted, name)]
    new = [name for name in dict.fromkeys(names) if not _is_on(trusted, name)]
    if not new:
        return dict(wanted)
    # The rest by name: what was on by the wanted `*` must not go with it.
    kept = {name: ToolSwitch() for name in names if name not in ROOT_ONLY_TOOLS}
    return {**kept, **wanted, **{name: ToolSwitch(enabled=False) for name in new}}


def permissions_trusted(wanted: list[Permission], trusted: list[Permission]) -> list[Permission]:
    """The wanted rules without new ones that allow, and every trusted one that asks or denies."""
    kept = [one for one in wanted if one.effect != "allow" or one in trusted]
    return and_those_trusted(kept, [one for one in trusted if one.effect != "allow"])


def on_or_as_trusted(wanted: bool, trusted: bool) -> bool:
    """Off only where it was off."""
    return wanted or trusted


def _is_on(tools: Mapping[str, ToolSwitch], name: str) -> bool:
    switch = tools.get(name, tools.get(EVERY_TOOL))
    return switch is not None and switch.enabled


# Each key of the file with its area and rule. A key that is in neither of a model's two tables
# falls under `unchanged`, so a new one is asked about until somebody decides on its rule.
CAGE_RULES: dict[str, tuple[str, Rule]] = {
    "net": ("network", network_trusted),
    "env": ("env", those_trusted),
    "ptrace": ("cage", only_if_trusted),
    "memory_mb": ("limits", partial(at_most_default, default=DEFAULTS.memory_mb)),
    "pids": ("limits", partial(at_most_default, default=DEFAULTS.pids)),
    "walltime_s": ("limits", lowest),
    "cpu_s": ("limits", lowest),
}
AGENT_RULES: dict[str, tuple[str, Rule]] = {
    "tools": ("tools", tools_trusted),
    "permissions": ("permissions", permissions_trusted),
    "stuck_guard": ("limits", on_or_as_trusted),
    "max_steps": ("limits", lowest),
    "max_output_tokens": ("limits", lowest),
}
COMPACTION_RULES: dict[str, tuple[str, Rule]] = {
    "delegate_to": ("delegate_to", no_new_command),
    "observers": ("observers", those_trusted),
}
LIMIT_RULES: dict[str, tuple[str, Rule]] = dict.fromkeys(
    ("running_sessions", "max_steps", "max_cost_usd", "max_cost_usd_per_run", "subagents"),
    ("limits", lowest),
)
# Keys that allow nothing: what the agent is told, which of the operator's models it is, and when
# its context is compacted. Folders of a memory outside of the project are config.toml's to allow.
NEUTRAL: dict[type[BaseModel], frozenset[str]] = {
    AgentSpec: frozenset({"model", "system_prompt", "terminal", "description"}),
    ProjectFile: frozenset(
        {"version", "project", "description", "on_crash", "auto_resume", "memory"}
    ),
    CompactionSettings: frozenset({"strategy", "upper", "lower", "keep_turns", "schedule_minutes"}),
    CageSettings: frozenset(),
    Limits: frozenset(),
}
APART: dict[type[BaseModel], set[str]] = {
    ProjectFile: {"primary", "limits"},
    AgentSpec: {"cage", "subagents", "compaction"},
    CageSettings: {"fs"},
}


def _cage_rules(defaults: ProjectDefaults) -> dict[str, tuple[str, Rule]]:
    return {
        **CAGE_RULES,
        "memory_mb": ("limits", partial(at_most_default, default=defaults.memory_mb)),
        "pids": ("limits", partial(at_most_default, default=defaults.pids)),
    }


@dataclass(frozen=True, slots=True)
class _Agents:
    """Compares agents, and notes what one of them loosens."""

    cage_rules: Mapping[str, tuple[str, Rule]]
    found: list[Loosening]

    def compare(self, wanted: AgentSpec, base: AgentSpec, path: str) -> AgentSpec:
        """The agent as far as `base` goes. A new subagent may do what its caller may.

        It is asked for and denied what its caller is without saying so, and allowed nothing by
        rule.
        """
        found = self.found
        new = base.model_copy(update={"permissions": []})
        subagents = {
            name: self.compare(one, base.subagents.get(name, new), f"{path}.subagents.{name}")
            for name, one in wanted.subagents.items()
        }
        compaction = _ruled(
            wanted.compaction, base.compaction, COMPACTION_RULES, f"{path}.compaction", found
        )
        apart = {
            "cage": self._cage(wanted.cage, base.cage, f"{path}.cage"),
            "compaction": compaction,
            "subagents": subagents,
        }
        return _ruled(wanted, base, AGENT_RULES, path, found).model_copy(update=apart)

    def _cage(self, wanted: Any, base: Any, path: str) -> Any:
        if not isinstance(base, CageSettings):
            return wanted
        if not isinstance(wanted, CageSettings):
            self.found.append(Loosening("cage", path, base, wanted))
            return base
        files = _files(wanted.fs, base.fs, f"{path}.fs", self.found)
        ruled = _ruled(wanted, base, self.cage_rules, path, self.found)
        return ruled.model_copy(update={"fs": files})


def _files(wanted: CageFiles, base: CageFiles, path: str, found: list[Loosening]) -> CageFiles:
    """Names are compared as they are written: where a link leads is not known here."""
    readable = [*base.read_only, *base.read_write]
    in_force = {
        "read_write": those_trusted(wanted.read_write, base.read_write),
        "read_only": those_trusted(wanted.read_only, readable),
        "hidden": and_those_trusted(wanted.hidden, base.hidden),
    }
    for name, value in in_force.items():
        if value != getattr(wanted, name):
            given = (getattr(base, name), getattr(wanted, name))
            found.append(Loosening("fs", f"{path}.{name}", *given))
    return wanted.model_copy(update=in_force)


def _ruled(
    wanted: Model,
    base: Model,
    rules: Mapping[str, tuple[str, Rule]],
    path: str,
    found: list[Loosening],
) -> Model:
    """The model with each of its keys as its rule has it."""
    free = NEUTRAL[type(wanted)] | APART.get(type(wanted), set())
    changed: dict[str, Any] = {}
    for name in type(wanted).model_fields:
        value, trusted = getattr(wanted, name), getattr(base, name)
        if name in free:
            continue
        area, rule = rules.get(name, (name, unchanged))
        in_force = rule(value, trusted)
        if in_force != value:
            changed[name] = in_force
            found.append(Loosening(area, f"{path}.{name}".lstrip("."), trusted, value))
    return wanted.model_copy(update=changed)
