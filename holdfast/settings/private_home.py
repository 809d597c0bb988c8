"""The home belongs to one user: what others could read or write in it is closed to them."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

OTHERS = stat.S_IRWXG | stat.S_IRWXO
# What we make there. A home that is somebody's whole user folder keeps the rest as it is.
OURS = (
    *("holdfast.sqlite", "temporal.db", "config.toml", "run.json", "token", "launch"),
    *("blobs", "logs", "terminal", "snapshots", "memory", "imported", "chats", "locks"),
    *("host.lock", "migrate.lock", "supervisor.lock", "write.lock", "keys", "fleet", "backups"),
)
ENTRIES_MAX = 1_000_000


def tighten(home: Path) -> int:
    """Take the rights of others from the home and from all of ours in it; how many had some."""
    changed = _close(home)
    for number, path in enumerate(_ours(home)):
        if number >= ENTRIES_MAX:
            break
        changed += _close(path)
    return changed


def _ours(home: Path) -> Iterator[Path]:
    for entry in sorted(home.iterdir()):
        if entry.name.startswith(OURS) or entry.suffix in (".sock", ".lock"):
            yield entry
            if entry.is_dir() and not entry.is_symlink():
                yield from _below(entry)


def _below(folder: Path) -> Iterator[Path]:
    for where, folders, files in os.walk(folder):
        yield from (Path(where) / name for name in (*folders, *files))


def _close(path: Path) -> int:
    """1 when others had rights. A link is not followed; what is not ours, or gone, stays."""
    try:
        status = path.lstat()
        if stat.S_ISLNK(status.st_mode) or status.st_uid != os.getuid():
            return 0
        if not status.st_mode & OTHERS:
            return 0
        path.chmod(stat.S_IMODE(status.st_mode) & ~OTHERS)
    except (FileNotFoundError, PermissionError):
        return 0
    return 1
