"""Folders of the kernel, where nobody works: /proc, /sys, /dev, and their kind anywhere else.

With one of them as a working directory whoever writes there sets the kernel, not files.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

PLACES = tuple(map(Path, ("/proc", "/sys", "/dev")))
KINDS = frozenset(
    {
        *("proc", "sysfs", "devtmpfs", "devpts", "cgroup", "cgroup2", "debugfs", "tracefs"),
        *("securityfs", "configfs", "bpf", "pstore", "efivarfs", "binfmt_misc", "mqueue"),
        *("fusectl", "selinuxfs", "hugetlbfs", "resctrl", "nsfs"),
    }
)
WORDS = "is a place of the kernel, where nobody works"
_ESCAPED = re.compile(rb"\\([0-7]{3})")


@dataclass(frozen=True, slots=True)
class Mount:
    """One line of mountinfo."""

    number: int
    place: Path
    kind: str


def mounts() -> list[Mount]:
    """What is mounted for this process; nothing where the system does not tell."""
    try:
        lines = Path("/proc/self/mountinfo").read_bytes().splitlines()
    except OSError:
        return []
    return [_mount(line) for line in lines]


def is_of_kernel(path: Path, descriptor: int | None = None) -> bool:
    """Whether the real path, or what is open as `descriptor`, is such a folder."""
    if any(path.is_relative_to(place) for place in PLACES):
        return True
    try:
        opened = os.open(path, os.O_PATH | os.O_CLOEXEC) if descriptor is None else descriptor
    except OSError:
        return False
    try:
        number = _mount_number(opened)
    finally:
        if descriptor is None:
            os.close(opened)
    return any(mount.number == number and mount.kind in KINDS for mount in mounts())


def below(folders: Iterable[Path]) -> Mount | None:
    """A mount of the kernel's inside one of these folders, which a bind of it would bring along."""
    given = list(folders)
    for mount in mounts():
        if mount.kind in KINDS and any(mount.place.is_relative_to(folder) for folder in given):
            return mount
    return None


def _mount(line: bytes) -> Mount:
    front, _, back = line.partition(b" - ")
    words = front.split(b" ")
    place = _ESCAPED.sub(lambda found: bytes([int(found[1], 8)]), words[4])
    return Mount(int(words[0]), Path(os.fsdecode(place)), back.split(b" ")[0].decode())


def _mount_number(descriptor: int) -> int | None:
    try:
        told = Path(f"/proc/self/fdinfo/{descriptor}").read_text().splitlines()
    except OSError:
        return None
    numbers = [line.split()[1] for line in told if line.startswith("mnt_id:")]
    return int(numbers[0]) if numbers else None
