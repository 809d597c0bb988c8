"""Control groups for cages: the kernel counts memory and processes and holds them to a limit.

Whether a controller can be used is found out by making a group and entering it, never by version:
version 2 where a folder was delegated to us, else version 1, else none. All groups of a host lie in
one folder named after its state directory, so that the next host finds what a killed one left.
"""

import contextlib
import hashlib
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

CONTROLLERS = ("memory", "pids")
PREFIX = "holdfast-"
RECORD = "cgroups"
SWEEP_TIMEOUT_S = 2.0
SWEEP_POLL_S = 0.01
# A trial with limits that any program fits into.
TRIAL_MEMORY_BYTES = 256 * 1024 * 1024
TRIAL_PIDS = 64
UNIFIED = "cgroup2"
# To move a whole process the kernel stops all forks of the machine, for 14 ms where 11 programs
# were running; one thread moves itself in 0.3 ms, but version 2 does not take single threads.
ENTRANCES = {1: "tasks", 2: "cgroup.procs"}


@dataclass(frozen=True, slots=True)
class Pool:
    """A folder in which groups can be made, and the controllers that it has."""

    path: Path
    version: int
    controllers: tuple[str, ...]


class Group:
    """The control groups of one process tree, one folder per pool."""

    def __init__(self, name: str, pools: Sequence[Pool]) -> None:
        self._places = [(pool, pool.path / name) for pool in pools]

    def make(self, *, memory_bytes: int, pids: int) -> None:
        """Create the folders and write the limits."""
        for pool, place in self._places:
            place.mkdir(exist_ok=True)
            if "memory" in pool.controllers:
                _limit_memory(pool, place, memory_bytes)
            if "pids" in pool.controllers:
                (place / "pids.max").write_text(str(pids))

    def enter(self) -> None:
        """Put the calling process, of one thread, into the group; what it starts is born there."""
        for pool, place in self._places:
            entrance = os.open(place / ENTRANCES[pool.version], os.O_WRONLY | os.O_CLOEXEC)
            try:
                os.write(entrance, b"0")
            finally:
                os.close(entrance)

    def memory_kills(self) -> int:
        """How many processes the kernel ended because the group was over its memory."""
        kills = 0
        for pool, place in self._places:
            if "memory" in pool.controllers:
                name = "memory.events" if pool.version == 2 else "memory.oom_control"
                kills += _count(place / name, "oom_kill")
        return kills

    def refused_forks(self) -> int:
        """How often the group was refused one more process or thread."""
        return sum(
            _count(place / "pids.events", "max")
            for pool, place in self._places
            if "pids" in pool.controllers
        )

    def remove(self) -> bool:
        """Remove the folders; False if something is still inside, then ask again later."""
        for _, place in self._places:
            try:
                place.rmdir()
            except FileNotFoundError:
                continue
            except OSError:
                return False
        return True


class Cgroups:
    """What this machine lets the host do with control groups; nothing if it is not allowed to."""

    def __init__(self, state_dir: Path, *, wanted: bool) -> None:
        self._record = state_dir / RECORD
        name = PREFIX + hashlib.sha256(os.fsencode(state_dir.resolve())).hexdigest()[:16]
        self._name = name
        self._wanted = wanted
        self._pools: list[Pool] | None = None
        self._leaving: list[Group] = []
        self._sweep()

    @property
    def pools(self) -> list[Pool]:
        """Where groups are made; tried out when the first cage needs to know."""
        if self._pools is None:
            self._pools = _find_pools(self._name) if self._wanted else []
            self._record.touch(mode=0o600)
            self._record.write_text("".join(f"{pool.path}\n" for pool in self._pools))
        return self._pools

    def has(self, controller: str) -> bool:
        """Whether the kernel holds cages to this kind of limit."""
        return any(controller in pool.controllers for pool in self.pools)

    def group(self, name: str) -> Group | None:
        """A group that is not made yet, or None where there are none."""
        return Group(name, self.pools) if self.pools else None

    def let_go(self, group: Group) -> None:
        """Remove a group now, or at one of the next ticks if a process is still leaving it."""
        if not group.remove():
            self._leaving.append(group)

    def tick(self) -> None:
        """Try again to remove what could not be removed at once."""
        self._leaving = [group for group in self._leaving if not group.remove()]

    def close(self) -> None:
        """Remove all groups, and the folders they were in."""
        for pool in self._pools or ():
            sweep(pool.path)

    def _sweep(self) -> None:
        """End and remove what an earlier host of this state directory left behind."""
        with contextlib.suppress(OSError):
            for line in self._record.read_text().splitlines():
                if Path(line).name == self._name:
                    sweep(Path(line))


def sweep(pool: Path) -> None:
    """Kill what is in the groups of a pool, then remove them and the pool."""
    deadline = time.monotonic() + SWEEP_TIMEOUT_S
    while pool.is_dir() and time.monotonic() < deadline:
        for place in [path for path in pool.iterdir() if path.is_dir()]:
            for pid in _members(place):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            with contextlib.suppress(OSError):
                place.rmdir()
        with contextlib.suppress(OSError):
            pool.rmdir()
            return
        time.sleep(SWEEP_POLL_S)


def _find_pools(name: str) -> list[Pool]:
    """Pools for as many controllers as can be had; version 2 first."""
    found: list[Pool] = []
    missing = list(CONTROLLERS)
    for version, controllers, base in _candidates():
        wanted = [controller for controller in missing if controller in controllers]
        if not wanted:
            continue
        pool = _try(base / name, version, wanted)
        if pool is not None:
            found.append(pool)
            missing = [controller for controller in missing if controller not in pool.controllers]
    return found


def _try(path: Path, version: int, wanted: Sequence[str]) -> Pool | None:
    """The pool, if a program could be started in a group of it."""
    pool = Pool(path, version, tuple(wanted))
    trial = Group("trial", [pool])
    try:
        if version == 2:
            _delegate(path.parent, wanted)
        path.mkdir(exist_ok=True)
        if version == 2:
            _delegate(path, wanted)
        trial.make(memory_bytes=TRIAL_MEMORY_BYTES, pids=TRIAL_PIDS)
        program = shutil.which("true") or "/bin/true"
        subprocess.run([program], preexec_fn=trial.enter, check=True, timeout=SWEEP_TIMEOUT_S)
    except (OSError, subprocess.SubprocessError):
        sweep(path)
        return None
    trial.remove()
    return pool


def _delegate(folder: Path, wanted: Sequence[str]) -> None:
    """Let the groups below a version 2 folder have the controllers, or OSError."""
    switch = folder / "cgroup.subtree_control"
    missing = set(wanted) - set(switch.read_text().split())
    if missing:
        switch.write_text(" ".join(f"+{controller}" for controller in sorted(missing)))


def _candidates() -> list[tuple[int, tuple[str, ...], Path]]:
    """Folders to try: our own group's, and in version 2 its parent's, whose groups are siblings."""
    own = _own_groups()
    found: list[tuple[int, tuple[str, ...], Path]] = []
    for kind, controllers, root, mountpoint in _mounts():
        key = "" if kind == UNIFIED else next((c for c in controllers if c in own), None)
        if key is None or key not in own:
            continue
        # In a container the mount may begin below the root that /proc/self/cgroup counts from.
        inside = own[key].removeprefix(root if root != "/" else "").strip("/")
        group = mountpoint / inside
        if kind == UNIFIED:
            parents = [group.parent] if inside else []
            found = [(2, CONTROLLERS, place) for place in (group, *parents)] + found
        else:
            found.append((1, controllers, group))
    return found


def _own_groups() -> dict[str, str]:
    """The path of our own group by controller; the empty name is version 2."""
    found: dict[str, str] = {}
    with contextlib.suppress(OSError):
        for line in Path("/proc/self/cgroup").read_text().splitlines():
            _, names, path = line.split(":", 2)
            found.update(dict.fromkeys(names.split(","), path))
    return found


def _mounts() -> list[tuple[str, tuple[str, ...], str, Path]]:
    """Where control groups are mounted: kind, controllers, root within the hierarchy, place."""
    found = []
    with contextlib.suppress(OSError):
        for line in Path("/proc/self/mountinfo").read_text().splitlines():
            front, _, back = line.partition(" - ")
            kind, _, options = back.split(" ", 2)
            if kind in ("cgroup", UNIFIED):
                _, _, _, root, place, *_ = front.split(" ")
                controllers = tuple(c for c in CONTROLLERS if c in options.split(","))
                found.append((kind, controllers, root, Path(place)))
    return found


def _limit_memory(pool: Pool, place: Path, memory_bytes: int) -> None:
    if pool.version == 2:
        (place / "memory.max").write_text(str(memory_bytes))
        _write_if_there(place / "memory.swap.max", "0")
    else:
        (place / "memory.limit_in_bytes").write_text(str(memory_bytes))
        # Memory and swap together; the kernel may be built or booted without it.
        _write_if_there(place / "memory.memsw.limit_in_bytes", str(memory_bytes))


def _write_if_there(path: Path, text: str) -> None:
    if path.exists():
        path.write_text(text)


def _count(path: Path, key: str) -> int:
    with contextlib.suppress(OSError, ValueError):
        for line in path.read_text().splitlines():
            name, _, value = line.partition(" ")
            if name == key:
                return int(value)
    return 0


def _members(place: Path) -> list[int]:
    try:
        return [int(line) for line in (place / "cgroup.procs").read_text().split()]
    except (OSError, ValueError):
        return []
