"""How much a cage may use at most: what the operator set, narrowed or widened by the project file.

No cage is without limits. What a project file asks for beyond the machine is an error in words.
"""

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Self

from holdfast.domain.cages import defaults as cage_defaults
from holdfast.terminal.cages.policy import CagePolicy
from holdfast.terminal.errors import BadCage

MEGABYTE = 1024 * 1024
ENVIRONMENT_NAME = "HOLDFAST_CAGES"
PIDS_FALLBACK_MAX = 32768
# bwrap itself: the one that waits outside and the first process inside.
CAGE_OWN_PROCESSES = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class CageLimits:
    """`[cages]` of config.toml, as it reaches the terminal host; the defaults are those there."""

    memory_mb: int = cage_defaults.MEMORY_MB
    pids: int = cage_defaults.PIDS
    file_mb: int = 4096
    disk_mb: int = 32768
    tmp_mb: int = 512
    cgroups: bool = True

    @classmethod
    def from_environment(cls, environment: Mapping[str, str]) -> Self:
        """What whoever started the host put into its environment, or the defaults."""
        raw = json.loads(environment.get(ENVIRONMENT_NAME) or "{}")
        known = {entry.name for entry in fields(cls)}
        return cls(**{name: value for name, value in raw.items() if name in known})

    def to_environment(self) -> dict[str, str]:
        """The variable from which a host reads these limits."""
        return {ENVIRONMENT_NAME: json.dumps(asdict(self))}

    def applied(self, policy: CagePolicy) -> CagePolicy:
        """The policy with every limit filled in; BadCage for more than the machine has."""
        memory_max, pids_max = machine_memory_mb(), machine_pids()
        _refuse_above("memory_mb", policy.memory_mb, memory_max, "MB of memory")
        _refuse_above("pids", policy.pids, pids_max, "processes")
        memory = policy.memory_mb or min(self.memory_mb, memory_max)
        return replace(
            policy,
            memory_mb=memory,
            pids=policy.pids or min(self.pids, pids_max),
            file_mb=self.file_mb,
            disk_mb=self.disk_mb,
            tmp_mb=min(self.tmp_mb, memory),
        )


def machine_memory_mb() -> int:
    """The memory of this machine."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // MEGABYTE


def machine_pids() -> int:
    """How many processes and threads the kernel can tell apart."""
    try:
        return int(Path("/proc/sys/kernel/pid_max").read_text())
    except (OSError, ValueError):
        return PIDS_FALLBACK_MAX


def _refuse_above(key: str, asked: int | None, most: int, noun: str) -> None:
    if asked is not None and asked > most:
        raise BadCage(f"cage.{key} is {asked}, but this machine has {most} {noun}")
