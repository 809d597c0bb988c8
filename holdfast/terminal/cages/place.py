"""Where a program works: its folder, opened once and judged by what it is, not by its name."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from holdfast.folders import kernel_places
from holdfast.folders.hidden import is_hidden
from holdfast.folders.openat2 import BENEATH, available, openat2
from holdfast.folders.opened import identity, open_below, open_root
from holdfast.terminal.errors import CageSpawnFailed, SpawnFailed

DELETED = " (deleted)"


@dataclass(frozen=True, slots=True)
class Place:
    """The folder of a program (a descriptor, and its real path) and what lies near it.

    `root` is the session's own folder. `hidden` is what no program in a cage may see, `project` a
    project's folder, whose settings no program may change.
    """

    descriptor: int
    path: Path
    root: Path
    hidden: tuple[Path, ...] = ()
    project: Path | None = None


@contextmanager
def opened_place(
    root: Path, below: str, *, hidden: Sequence[Path], project: Path | None = None
) -> Iterator[Place]:
    """The folder `below` the root, or SpawnFailed.

    When it is missing, behind a link, or a place of the kernel.
    """
    try:
        start = open_root(root)
        try:
            real_root = real_path(start)
            folder = open_below(start, below)
        finally:
            os.close(start)
    except OSError as error:
        raise SpawnFailed(_refusal(root / below, error)) from error
    try:
        path = real_path(folder)
        if kernel_places.is_of_kernel(path, folder):
            raise SpawnFailed(f"{path} {kernel_places.WORDS}")
        yield Place(folder, path, real_root, tuple(hidden), project)
    finally:
        os.close(folder)


def judge(place: Place) -> None:
    """Refuse a folder that no caged program may work in."""
    path = place.path
    # By device and inode too: a mount elsewhere has another name for the same folder.
    hidden = is_hidden(path, place.hidden, given=place.root)
    hidden |= identity(place.descriptor) in map(_identity, place.hidden)
    if path == Path("/") or hidden:
        raise CageSpawnFailed(f"a cage cannot work in {path}")


def real_path(descriptor: int) -> Path:
    """Where an open file or folder is now; SpawnFailed when it was deleted."""
    name = str(Path(f"/proc/self/fd/{descriptor}").readlink())
    if name.endswith(DELETED) and os.fstat(descriptor).st_nlink == 0:
        raise SpawnFailed(f"no such directory: {name}")
    return Path(name)


def open_named(path: Path) -> int:
    """A descriptor (O_PATH) of a real path; ELOOP when any part of it is a link."""
    return open_named_below(None, str(path))


def open_named_below(folder: int | None, name: str) -> int:
    """A descriptor (O_PATH) of a file or folder; below `folder` links must stay inside it."""
    if folder is None:
        parent = open_root(Path(name).parent)
        try:
            return os.open(Path(name).name or ".", _FLAGS | os.O_NOFOLLOW, dir_fd=parent)
        finally:
            os.close(parent)
    if available():
        return openat2(folder, name or ".", os.O_PATH, resolve=BENEATH)
    path = Path(name)
    parent = open_below(folder, str(path.parent))
    try:
        return os.open(path.name or ".", _FLAGS | os.O_NOFOLLOW, dir_fd=parent)
    finally:
        os.close(parent)


def _refusal(folder: Path, error: OSError) -> str:
    if error.errno == errno.EXDEV:
        return f"{folder} leads out of the session's working directory"
    if error.errno == errno.ELOOP:
        return f"{folder} is behind a link that was not there when the session began"
    return f"no such directory: {folder}"


_FLAGS = os.O_PATH | os.O_CLOEXEC


def _identity(path: Path) -> tuple[int, int] | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino
