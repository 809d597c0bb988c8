"""Process trees as the kernel shows them: find, stop, wake and end all descendants."""

import asyncio
import contextlib
import os
import signal
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

PROC = Path("/proc")
ROUNDS_MAX = 50
STOP_TIMEOUT_S = 5.0
STOP_POLL_S = 0.0005
STOPPED_STATES = frozenset("TtZXx")
DEAD_STATES = frozenset("ZXx")


@dataclass(frozen=True, slots=True)
class Status:
    """One line of /proc/PID/stat, as much as is needed here."""

    pid: int
    parent: int
    state: str


def read_status(pid: int) -> Status | None:
    """The state of one process, or None if there is none."""
    try:
        line = (PROC / str(pid) / "stat").read_text(errors="replace")
    except OSError:
        return None
    # The name is in parentheses and may contain anything, also parentheses and spaces.
    fields = line[line.rindex(")") + 2 :].split()
    return Status(pid, int(fields[1]), fields[0])


def children_by_parent() -> dict[int, list[int]]:
    """Who was born of whom, for all processes on the machine."""
    found: dict[int, list[int]] = {}
    for entry in os.listdir(PROC):  # noqa: PTH208 (ten times as quick as iterdir, 10 times a second)
        if entry.isdigit() and (status := read_status(int(entry))) is not None:
            found.setdefault(status.parent, []).append(status.pid)
    return found


def children_of(pid: int) -> list[int]:
    """The direct children of one process, of all its threads."""
    found: list[int] = []
    try:
        for task in (PROC / str(pid) / "task").iterdir():
            found += map(int, (task / "children").read_text().split())
    except OSError:
        # The process went away, or the kernel was built without this file.
        return found or children_by_parent().get(pid, []) if (PROC / str(pid)).exists() else []
    return found


def descendants(root: int) -> list[int]:
    """`root` and everything below it, parents before children."""
    found = [root]
    seen = {root}
    for pid in found:
        fresh = [child for child in children_of(pid) if child not in seen]
        seen.update(fresh)
        found += fresh
    return found


async def stop(root: int) -> list[int] | None:
    """Stop a whole tree and see each process of it stand still; None if some do not in time.

    Parents stand before their children are stopped: a shell that still runs would see its job stop
    and take the terminal back. New processes are looked for until there are none.
    """
    deadline = time.monotonic() + STOP_TIMEOUT_S
    stopped: list[int] = []
    while time.monotonic() < deadline:
        fresh = [pid for pid in descendants(root) if pid not in stopped]
        if not fresh and all_stopped(stopped):
            return [pid for pid in stopped if is_alive(pid)]
        for pid in fresh:
            send(pid, signal.SIGSTOP)
            await _stands(pid, deadline)
        stopped += fresh
    return None


async def _stands(pid: int, deadline: float) -> None:
    # A process in the kernel stops when it comes back, mostly within microseconds.
    while not all_stopped([pid]) and time.monotonic() < deadline:  # noqa: ASYNC110 (no event tells)
        await asyncio.sleep(STOP_POLL_S)


def proceed(root: int) -> list[int]:
    """SIGCONT a whole tree, leaves first, the leader last; the pids woken."""
    woken = list(reversed(descendants(root)))
    for pid in woken:
        send(pid, signal.SIGCONT)
    return woken


def all_stopped(pids: Iterable[int]) -> bool:
    """Whether each of these processes is stopped or gone."""
    statuses = (read_status(pid) for pid in pids)
    return all(status is None or status.state in STOPPED_STATES for status in statuses)


def kill(root: int) -> None:
    """SIGKILL a whole tree; each is stopped first so that nothing can be born meanwhile."""
    found: list[int] = []
    for _ in range(ROUNDS_MAX):
        fresh = [pid for pid in descendants(root) if pid not in found]
        if not fresh:
            break
        for pid in fresh:
            send(pid, signal.SIGSTOP)
        found += fresh
    for pid in found:
        send(pid, signal.SIGKILL)


def send(pid: int, number: int) -> None:
    """Send a signal to a process that may be gone already."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, number)


def reap(pid: int) -> None:
    """Take a dead child off the kernel's list."""
    with contextlib.suppress(ChildProcessError):
        os.waitpid(pid, os.WNOHANG)


def is_alive(pid: int) -> bool:
    """Whether the process runs or is stopped; a zombie is not alive."""
    status = read_status(pid)
    return status is not None and status.state not in DEAD_STATES


def marked(name: bytes, values: Iterable[str]) -> list[int]:
    """The processes whose environment has `name` set to one of `values`."""
    wanted = {name + b"=" + value.encode() for value in values}
    found: list[int] = []
    if not wanted:
        return found
    for entry in os.listdir(PROC):  # noqa: PTH208
        if entry.isdigit():
            with contextlib.suppress(OSError):
                if wanted & set((PROC / entry / "environ").read_bytes().split(b"\0")):
                    found.append(int(entry))
    return found
