"""What a cage holds, in words for people and programs: of a project file, on a machine."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from typing_extensions import TypedDict

CageKind = Literal["bubblewrap", "landlock", "none", "unknown"]
LIMITS = ("memory_mb", "pids", "cpu_s", "walltime_s")
DISABLED = "`cage: disabled` in the project file"


class CageShown(TypedDict):
    """What holds an agent's programs; `none` with a reason, `unknown` while no host answers."""

    kind: str
    program: str | None
    network: str
    limits: dict[str, float]
    reduced: list[str]
    why: str


@dataclass(frozen=True, slots=True)
class MachineCage:
    """The best cage of a machine; `reduced` is what it does not hold, `why` it is not a better.

    `limits` are those of an agent whose project file names none.
    """

    kind: CageKind
    program: str | None = None
    reduced: tuple[str, ...] = ()
    why: str = ""
    limits: Mapping[str, float] = field(default_factory=dict)


UNKNOWN = MachineCage("unknown", why="the terminal host was not asked yet")


def described(cage: Mapping[str, Any] | Literal["disabled"], machine: MachineCage) -> CageShown:
    """The cage of an agent (as its project file has it) on a machine."""
    if isinstance(cage, str):
        machine, cage = MachineCage("none", why=DISABLED), {"net": "host"}
    own = {name: float(cage[name]) for name in LIMITS if cage.get(name) is not None}
    return {
        "kind": machine.kind,
        "program": machine.program,
        "network": _network(cage.get("net")),
        "limits": {**machine.limits, **own},
        "reduced": list(machine.reduced),
        "why": machine.why,
    }


def _network(net: Any) -> str:
    """`none`, `machine` (all that the machine reaches), `public`, or the hosts by name."""
    if net == "host":
        return "machine"
    if isinstance(net, Mapping):
        return ", ".join(net["allow"])
    return "public" if net in (True, "on") else "none"


def in_words(cage: CageShown) -> str:
    """One line: `cage kind: landlock (reduced): …`."""
    line = f"cage kind: {cage['kind']}"
    line += f" ({cage['program']})" if cage["program"] else ""
    line += f" (reduced): {'; '.join(cage['reduced'])}" if cage["reduced"] else ""
    return f"{line}; because {cage['why']}" if cage["why"] else line
