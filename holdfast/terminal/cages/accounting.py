"""What a process tree uses, as /proc tells: memory of every kind, threads, and bytes on disk.

For machines without control groups. Memory is counted once however many processes share it: private
and shared pages by their share, files in the cage's own tmpfs and memfds by their size. Not seen is
what no process maps or holds open, such as a memfd that waits in a socket; FSIZE bounds each.
"""

import contextlib
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from holdfast.terminal import tree

PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
KILOBYTE = 1024
BLOCK_BYTES = 512
# What the kernel spends on one file of a tmpfs, however empty it is.
INODE_BYTES = 1024
THREADS_FIELD = 17

File = tuple[int, int]


@dataclass(frozen=True, slots=True)
class _Tmpfs:
    device: int
    used_bytes: int


class _Memory:
    """One look at the memory of a tree: its processes, and what is kept in files of memory."""

    def __init__(self, root: int) -> None:
        self._pids = tree.descendants(root)
        mounts = _own_tmpfs(root)
        self._devices = {mount.device for mount in mounts}
        self._files = _memfds(self._pids)
        self._kept = sum(mount.used_bytes for mount in mounts) + sum(self._files.values())

    def at_most(self) -> int:
        return self._kept + sum(map(_resident, self._pids))

    def exact(self) -> int:
        return self._kept + sum(_share(pid, self._devices, self._files) for pid in self._pids)


def threads(root: int) -> int:
    """How many threads the processes of a tree have together."""
    return sum(map(_threads_of, tree.descendants(root)))


def threads_of_user(user: int) -> int:
    """How many threads run as a user, in cages and outside: what RLIMIT_NPROC counts."""
    total = 0
    for entry in os.scandir(tree.PROC):
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                if entry.stat().st_uid == user:
                    total += _threads_of(int(entry.name))
    return total


def written_bytes(root: int) -> int:
    """What a tree has written to disks so far, processes that are over included."""
    return sum(map(_written_by, tree.descendants(root)))


def memory_bytes(root: int, limit: int) -> int:
    """The memory of a tree; exact only if a quick look, which counts too much, is over `limit`."""
    look = _Memory(root)
    quick = look.at_most()
    if quick <= limit:
        return quick
    # Processes that fork or end while they are read count shared pages more than once, so a tree is
    # over its limit when two looks in a row say so.
    exact = look.exact()
    return exact if exact <= limit else min(exact, _Memory(root).exact())


def kernel_kills() -> int:
    """How many processes the kernel has ended for want of memory since the machine started."""
    with contextlib.suppress(OSError):
        for line in Path("/proc/vmstat").read_text().splitlines():
            if line.startswith("oom_kill "):
                return int(line.split()[1])
    return 0


def _threads_of(pid: int) -> int:
    with contextlib.suppress(OSError, ValueError, IndexError):
        line = (tree.PROC / str(pid) / "stat").read_text(errors="replace")
        return int(line[line.rindex(")") + 2 :].split()[THREADS_FIELD])
    return 0


def _written_by(pid: int) -> int:
    found: dict[str, int] = {}
    with contextlib.suppress(OSError, ValueError):
        for line in (tree.PROC / str(pid) / "io").read_text().splitlines():
            name, _, value = line.partition(": ")
            found[name] = int(value)
    return max(0, found.get("write_bytes", 0) - found.get("cancelled_write_bytes", 0))


def _resident(pid: int) -> int:
    with contextlib.suppress(OSError, ValueError, IndexError):
        return int((tree.PROC / str(pid) / "statm").read_text().split()[1]) * PAGE_BYTES
    return 0


def _share(pid: int, devices: set[int], files: dict[File, int]) -> int:
    """A process' share of anonymous and shared memory, without the files that are counted."""
    fields: dict[str, int] = {}
    try:
        for name, value in _numbers((tree.PROC / str(pid) / "smaps_rollup").read_text()):
            fields[name] = value
    except OSError:
        # It went away, or hides: then all that it has counts.
        return _resident(pid)
    if "Pss_Anon" not in fields:
        return (fields.get("Pss", 0) + fields.get("SwapPss", 0)) * KILOBYTE
    shared = fields.get("Pss_Shmem", 0)
    if shared and (devices or files):
        shared -= _counted_as_files(pid, devices, files)
    return (fields["Pss_Anon"] + fields.get("SwapPss", 0) + max(0, shared)) * KILOBYTE


def _counted_as_files(pid: int, devices: set[int], files: dict[File, int]) -> int:
    """Kilobytes that a process maps of files whose whole size is counted already."""
    total, counted = 0, False
    with contextlib.suppress(OSError, ValueError):
        for line in (tree.PROC / str(pid) / "smaps").read_text(errors="replace").splitlines():
            words = line.split(maxsplit=5)
            if len(words) >= 5 and not words[0].endswith(":"):
                major, _, minor = words[3].partition(":")
                device = os.makedev(int(major, 16), int(minor, 16))
                counted = device in devices or (device, int(words[4])) in files
            elif counted and words[0] == "Pss:":
                total += int(words[1])
    return total


def _numbers(text: str) -> Iterator[tuple[str, int]]:
    for line in text.splitlines():
        name, _, rest = line.partition(":")
        words = rest.split()
        if words and words[0].isdigit():
            yield name, int(words[0])


def _memfds(pids: Iterable[int]) -> dict[File, int]:
    """The files that exist only in memory and that some process holds open, by their size."""
    found: dict[File, int] = {}
    for pid in pids:
        folder = f"{tree.PROC}/{pid}/fd"
        with contextlib.suppress(OSError):
            for number in os.listdir(folder):  # noqa: PTH208 (ten times a second)
                path = f"{folder}/{number}"
                with contextlib.suppress(OSError):
                    if os.readlink(path).startswith("/memfd:"):  # noqa: PTH115
                        status = os.stat(path)  # noqa: PTH116
                        found[(status.st_dev, status.st_ino)] = status.st_blocks * BLOCK_BYTES
    return found


def _own_tmpfs(root: int) -> list[_Tmpfs]:
    """The tmpfs mounts that the cage has and the host has not."""
    inside = next(iter(tree.children_of(root)), None)
    if inside is None:
        return []
    ours = {device for device, _ in _tmpfs_places("self")}
    found: dict[int, _Tmpfs] = {}
    for device, place in _tmpfs_places(str(inside)):
        if device not in ours and device not in found:
            with contextlib.suppress(OSError):
                size = os.statvfs(f"{tree.PROC}/{inside}/root{place}")
                used = (size.f_blocks - size.f_bfree) * size.f_frsize
                inodes = (size.f_files - size.f_ffree) * INODE_BYTES
                found[device] = _Tmpfs(device, used + inodes)
    return list(found.values())


def _tmpfs_places(process: str) -> Iterator[tuple[int, str]]:
    try:
        lines = (tree.PROC / process / "mountinfo").read_text().splitlines()
    except OSError:
        return
    for line in lines:
        front, _, back = line.partition(" - ")
        if back.startswith("tmpfs "):
            _, _, numbers, _, place, *_ = front.split(" ")
            major, _, minor = numbers.partition(":")
            # Spaces and the like are written as octal escapes.
            yield os.makedev(int(major), int(minor)), place.encode().decode("unicode_escape")
