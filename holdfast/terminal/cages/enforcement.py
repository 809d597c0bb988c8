"""Holds one caged process tree to its limits, and tells which limit it ran into.

The kernel holds where it can: control groups for memory and processes, rlimits for what one process
may do. The rest is watched, ten times a second for memory and processes, each second for the disk.
"""

import os
import resource
import signal
import time
from dataclasses import dataclass

from holdfast.terminal.cages import accounting
from holdfast.terminal.cages.cgroups import Cgroups, Group
from holdfast.terminal.cages.limits import CAGE_OWN_PROCESSES, MEGABYTE
from holdfast.terminal.cages.policy import CagePolicy
from holdfast.terminal.records import Reason

CPU_GRACE_S = 5
DISK_INTERVAL_S = 1.0
# So that whoever watches sees a cage over its limit before the kernel refuses it more.
THREADS_SLACK = 64


@dataclass(frozen=True, slots=True)
class Excess:
    """The limit that was reached, for the exit and for people."""

    reason: Reason
    message: str


class Enforcement:
    """The limits of one tree, from before its first process until after its last."""

    def __init__(self, policy: CagePolicy, cgroups: Cgroups, name: str) -> None:
        assert policy.memory_mb is not None
        assert policy.pids is not None
        self._policy = policy
        self._cgroups = cgroups
        self._memory_bytes = policy.memory_mb * MEGABYTE
        self._pids = policy.pids + CAGE_OWN_PROCESSES
        self._group: Group | None = cgroups.group(name)
        self._disk_at = time.monotonic() + DISK_INTERVAL_S
        self._kernel_kills = accounting.kernel_kills()
        self._threads_allowed: int | None = None
        if self._group is not None:
            self._group.make(memory_bytes=self._memory_bytes, pids=self._pids)
        user = os.geteuid()
        if not cgroups.has("pids") and user != 0:
            # The kernel counts all that runs as this user, so the cage is given what is left.
            running = accounting.threads_of_user(user)
            self._threads_allowed = running + self._pids + THREADS_SLACK

    def enter(self) -> None:
        """In the child, before it becomes the program: into the groups, under the rlimits."""
        policy = self._policy
        if self._group is not None:
            self._group.enter()
        if policy.cpu_s is not None:
            _bound(resource.RLIMIT_CPU, policy.cpu_s, policy.cpu_s + CPU_GRACE_S)
        if policy.file_mb is not None:
            size = policy.file_mb * MEGABYTE
            _bound(resource.RLIMIT_FSIZE, size, size)
        if self._threads_allowed is not None:
            _bound(resource.RLIMIT_NPROC, self._threads_allowed, self._threads_allowed)

    def excess(self, root: int | None) -> Excess | None:
        """The limit that the tree is over, if any; None as `root` once its leader is gone."""
        return self._memory(root) or self._processes(root) or self._disk(root)

    def excess_by_signal(self, number: int | None) -> Excess | None:
        """The limit for which the kernel ended the leader, if it was for one."""
        if number == signal.SIGXCPU:
            return Excess(Reason.CPU, f"more than {self._policy.cpu_s} s of processor time")
        if number == signal.SIGXFSZ:
            return Excess(Reason.DISK, f"a file above the limit of {self._policy.file_mb} MB")
        others = accounting.kernel_kills() > self._kernel_kills
        if number == signal.SIGKILL and others and not self._cgroups.has("memory"):
            return Excess(Reason.MEMORY, "the machine ran out of memory")
        return None

    def close(self) -> None:
        """The tree is over: its groups go."""
        if self._group is not None:
            self._cgroups.let_go(self._group)
            self._group = None

    def _memory(self, root: int | None) -> Excess | None:
        over = False
        if self._group is not None and self._cgroups.has("memory"):
            over = self._group.memory_kills() > 0
        elif root is not None:
            over = accounting.memory_bytes(root, self._memory_bytes) > self._memory_bytes
        words = f"over the memory limit of {self._policy.memory_mb} MB (cage.memory_mb)"
        return Excess(Reason.MEMORY, words) if over else None

    def _processes(self, root: int | None) -> Excess | None:
        over = False
        if self._group is not None and self._cgroups.has("pids"):
            over = self._group.refused_forks() > 0
        elif root is not None:
            over = accounting.threads(root) > self._pids
        words = f"over the limit of {self._policy.pids} processes and threads (cage.pids)"
        return Excess(Reason.PIDS, words) if over else None

    def _disk(self, root: int | None) -> Excess | None:
        policy, now = self._policy, time.monotonic()
        if root is None or policy.disk_mb is None or now < self._disk_at:
            return None
        self._disk_at = now + DISK_INTERVAL_S
        if accounting.written_bytes(root) <= policy.disk_mb * MEGABYTE:
            return None
        return Excess(Reason.DISK, f"more than {policy.disk_mb} MB written to disk")


def _bound(kind: int, soft: int, hard: int) -> None:
    """Set an rlimit; a lower one of the host's own stays."""
    _, ours = resource.getrlimit(kind)
    if ours != resource.RLIM_INFINITY:
        soft, hard = min(soft, ours), min(hard, ours)
    resource.setrlimit(kind, (soft, hard))
