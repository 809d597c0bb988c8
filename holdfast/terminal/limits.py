"""What a process tree uses, measured from outside: memory and processes."""

import contextlib
import os
from dataclasses import dataclass
from pathlib import Path

from holdfast.terminal import tree

PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True, slots=True)
class Usage:
    """One look at a tree."""

    memory_bytes: int
    processes: int


def measure(root: int) -> Usage:
    """Private memory of all processes of a tree, and how many there are.

    Pages shared with files do not count: the kernel can let go of those.
    """
    pids = tree.descendants(root)
    return Usage(sum(map(private_bytes, pids)), len(pids))


def private_bytes(pid: int) -> int:
    """Resident memory that is not shared with files."""
    try:
        fields = (tree.PROC / str(pid) / "statm").read_text().split()
    except OSError:
        return 0
    return max(0, int(fields[1]) - int(fields[2])) * PAGE_BYTES


def kernel_kills() -> int:
    """How many processes the kernel has ended for want of memory since the machine started."""
    with contextlib.suppress(OSError):
        for line in Path("/proc/vmstat").read_text().splitlines():
            if line.startswith("oom_kill "):
                return int(line.split()[1])
    return 0
