"""The cage as bubblewrap holds it: its command line and its environment.

Inside: the system read-only, the working directory read-write, a private /tmp and an empty home; no
secrets, no host socket, no foreign processes, no network unless asked for.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from holdfast.domain.cages.shown import CageKind
from holdfast.terminal.cages import seccomp
from holdfast.terminal.cages.confinement import Confinement, Wanted
from holdfast.terminal.cages.mounts import Mounts, hidden_folders
from holdfast.terminal.cages.policy import CagePolicy

HOME_INSIDE = "/tmp/home"
ENVIRONMENT_PASSED = ("PATH", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "TERM", "COLORTERM")
PATH_DEFAULT = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
PRIVATE_PATHS = ("/tmp", "/run", "/var/tmp", "/dev/shm")
PRIVATE_TMP_MB = 512
MEGABYTE = 1024 * 1024
# What /proc tells of the whole machine.
MASKED = (
    *("kcore", "keys", "key-users", "kallsyms", "timer_list", "sched_debug"),
    *("latency_stats", "kmsg"),
)
PROCESSES_SHOWN = "command lines of other processes on this machine can be read"
# As root `--unshare-all` alone would leave the cage with root's capabilities; hence the user.
ISOLATION = (
    *("--unshare-all", "--unshare-user", "--disable-userns", "--uid", "1000", "--gid", "1000"),
    *("--cap-drop", "ALL", "--die-with-parent", "--hostname", "cage"),
)


@dataclass(frozen=True, slots=True)
class Bubblewrap:
    """A bubblewrap that works here; `own_proc` is False where /proc cannot be mounted anew."""

    program: str
    own_proc: bool = True
    kind: ClassVar[CageKind] = "bubblewrap"

    @property
    def reduced(self) -> tuple[str, ...]:
        """What it does not hold, in words."""
        return () if self.own_proc else (PROCESSES_SHOWN,)

    def confine(self, wanted: Wanted, cleaning: ExitStack) -> Confinement:
        """The bwrap command that runs `wanted` and reports its status on a pipe."""
        policy = wanted.policy
        mounts = Mounts(policy, wanted.place, wanted.hiding)
        cleaning.callback(mounts.close)
        refused = seccomp.memfd(seccomp.filter_bytes(ptrace=policy.ptrace))
        cleaning.callback(os.close, refused)
        ours, theirs = os.pipe()
        cleaning.callback(os.close, theirs)
        line = [self.program, *ISOLATION, "--seccomp", str(refused)]
        line += ["--json-status-fd", str(theirs)]
        # A terminal needs its session for job control; typing into it is refused by the filter.
        line += [] if wanted.terminal else ["--new-session"]
        line += ["--share-net"] if policy.net else []
        waits, gate = _gate()
        cleaning.callback(os.close, waits)
        line += ["--block-fd", str(waits)]
        line += [*self._kernel_places(), *_private_places(policy)]
        rules = mounts.arguments()
        line += [word for rule in rules for word in rule]
        for path in ("/", "/dev", *hidden_folders(rules)):
            line += ["--remount-ro", path]
        line += ["--chdir", str(wanted.place.path), "--", *wanted.argv]
        return Confinement(
            argv=line,
            environment=environment(policy, os.environ, wanted.environment),
            descriptors=(theirs, refused, waits, *mounts.descriptors),
            status=ours,
            gate=gate,
        )

    def _kernel_places(self) -> list[str]:
        if not self.own_proc:
            return ["--ro-bind", "/proc", "/proc", "--dev", "/dev"]
        line = ["--proc", "/proc"]
        for path in (Path("/proc") / name for name in MASKED):
            line += ["--ro-bind", "/dev/null", str(path)] if path.exists() else []
        # bwrap leaves /proc/sys writable for a cage of root.
        return [*line, "--remount-ro", "/proc", "--dev", "/dev"]


def environment(
    policy: CagePolicy, ours: Mapping[str, str], extra: Mapping[str, str], home: str = HOME_INSIDE
) -> dict[str, str]:
    """The environment inside: a few harmless names, those the policy allows, and the caller's."""
    passed = {name: ours[name] for name in (*ENVIRONMENT_PASSED, *policy.env) if name in ours}
    temporary = "/tmp" if home == HOME_INSIDE else home
    user = {"USER": "cage", "LOGNAME": "cage", "HOME": home, "TMPDIR": temporary}
    return {"PATH": PATH_DEFAULT, "LANG": "C.UTF-8", **passed, **user, **extra}


def _gate() -> tuple[int, int]:
    """What bubblewrap reads from before it starts the program, and where to write then.

    It can write there as well: otherwise the end of the host, which is the end of its side of the
    pipe, would be taken for the word that opens the gate.
    """
    reads, gate = os.pipe()
    try:
        return os.open(f"/proc/self/fd/{reads}", os.O_RDWR | os.O_CLOEXEC), gate
    except BaseException:
        os.close(gate)
        raise
    finally:
        os.close(reads)


def _private_places(policy: CagePolicy) -> list[str]:
    """Empty folders that are memory; no process is charged for it, so it has a size."""
    size = (policy.tmp_mb or PRIVATE_TMP_MB) * MEGABYTE
    sized = [word for path in PRIVATE_PATHS for word in ("--size", str(size), "--tmpfs", path)]
    return [*sized, "--dir", HOME_INSIDE]
