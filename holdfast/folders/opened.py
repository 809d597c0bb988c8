"""A folder opened once: whoever holds the descriptor is past every swap of its path."""

from __future__ import annotations

import errno
import os
from pathlib import Path

from holdfast.folders.openat2 import BENEATH, NO_SYMLINKS, available, openat2

_PATH = os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC
_LINK = os.O_NOFOLLOW


def open_root(path: Path) -> int:
    """A descriptor (O_PATH) of a real absolute folder; ELOOP when a part of its path is a link.

    The path was resolved when it was accepted, so a link in it now was put there since.
    """
    if not path.is_absolute():
        raise OSError(errno.EINVAL, "not an absolute path", str(path))
    if available():
        return openat2(-100, str(path), _PATH, resolve=NO_SYMLINKS)
    return _walk(os.open("/", _PATH), path.parts[1:])


def open_below(root: int, relative: str) -> int:
    """A descriptor (O_PATH) of a folder below `root`; EXDEV when the name leads out of it.

    Links that stay inside are followed, where the kernel can judge them; elsewhere none is.
    """
    if available():
        return openat2(root, relative or ".", _PATH, resolve=BENEATH)
    if relative.startswith("/") or ".." in Path(relative).parts:
        raise OSError(errno.EXDEV, os.strerror(errno.EXDEV), relative)
    return _walk(os.dup(root), Path(relative).parts)


def identity(descriptor: int) -> tuple[int, int]:
    """Device and inode: what a folder is, whatever it is called."""
    status = os.fstat(descriptor)
    return status.st_dev, status.st_ino


def _walk(start: int, parts: tuple[str, ...]) -> int:
    folder = start
    for part in parts:
        try:
            following = os.open(part, _PATH | _LINK, dir_fd=folder)
        finally:
            os.close(folder)
        folder = following
    return folder
