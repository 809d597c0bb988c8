"""How a new index takes the place of the old: by two renames, and whole whenever we die (O-016)."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from uuid import uuid4

from holdfast.memory.locks import swapping

Hook = Callable[[str], None]


def temporary_of(path: Path) -> Path:
    """Where the next index is built."""
    return path.with_name(f"{path.name}.tmp-{uuid4()}")


def swap(path: Path, fresh: Path, at: Hook) -> None:
    """Put `fresh`, closed and complete, in the place of `path`; the old comes back on failure."""
    _flush(fresh)
    backup = path.with_name(f"{path.name}.backup-{uuid4()}")
    with swapping(path):
        # Of a sound file it was rolled back when we opened it: this one belongs to a damaged file.
        _journal(path).unlink(missing_ok=True)
        had_one = path.exists()
        if had_one:
            path.rename(backup)
        at("between the renames")
        try:
            fresh.rename(path)
        except OSError:
            if had_one:
                backup.rename(path)
            raise
        _flush(path.parent)
    at("before the backup is deleted")
    backup.unlink(missing_ok=True)


def restore(path: Path) -> None:
    """Put a backup back that a killed writer left without a main file."""
    if path.exists() or not backups_of(path):
        return
    with swapping(path):
        found = backups_of(path)
        if found and not path.exists():
            max(found, key=lambda one: one.stat().st_ctime_ns).rename(path)
            _flush(path.parent)


def sweep(path: Path) -> None:
    """Delete what killed writers left behind; only for who holds the writer's lock."""
    for one in (*_beside(path, ".backup-"), *_beside(path, ".tmp-")):
        one.unlink(missing_ok=True)


def unfinished(path: Path) -> list[Path]:
    """New indexes that were never whole: of no use but for what was embedded in them."""
    return [one for one in _beside(path, ".tmp-") if not one.name.endswith("-journal")]


def discard(fresh: Path) -> None:
    """Delete an index that will not be."""
    fresh.unlink(missing_ok=True)
    _journal(fresh).unlink(missing_ok=True)


def backups_of(path: Path) -> list[Path]:
    """The old indexes beside a path."""
    return [one for one in _beside(path, ".backup-") if not one.name.endswith("-journal")]


def _beside(path: Path, mark: str) -> list[Path]:
    try:
        return [one for one in path.parent.iterdir() if one.name.startswith(path.name + mark)]
    except FileNotFoundError:
        return []


def _journal(path: Path) -> Path:
    return path.with_name(f"{path.name}-journal")


def _flush(path: Path) -> None:
    file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(file)
    finally:
        os.close(file)
