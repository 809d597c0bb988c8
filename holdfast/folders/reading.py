"""Files of other people's folders, read so that no pipe, device or giant can hold the reader up."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

from holdfast.folders.openat2 import BENEATH, available, openat2
from holdfast.folders.opened import open_root

_FLAGS = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_PIECE = 1 << 20
LEADS_OUT = "a link in its path leads out of the folder"
NOT_REGULAR = "not a regular file"


def read_below(folder: Path, relative: str, *, limit: int) -> bytes:
    """A regular file below `folder`, at most `limit` bytes of it; OSError says in words why not.

    Links that stay below the folder are followed where the kernel can judge them, else none is.
    """
    root = open_root(folder)
    try:
        if available():
            return _content(openat2(root, relative, _FLAGS, resolve=BENEATH), limit, relative)
        return _content(_without_links(root, relative), limit, relative)
    except OSError as error:
        if error.errno in (errno.EXDEV, errno.ELOOP):
            raise OSError(error.errno, LEADS_OUT, relative) from error
        if error.errno == errno.ENXIO:  # a socket cannot be opened
            raise OSError(errno.EINVAL, NOT_REGULAR, relative) from error
        raise
    finally:
        os.close(root)


def read_regular(path: Path, *, limit: int) -> bytes:
    """The regular file that the path leads to, at most `limit` bytes of it."""
    return _content(os.open(path, _FLAGS), limit, str(path))


def _without_links(root: int, relative: str) -> int:
    folder = os.dup(root)
    *folders, name = Path(relative).parts
    for part in folders:
        try:
            following = os.open(part, _FLAGS | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=folder)
        finally:
            os.close(folder)
        folder = following
    try:
        return os.open(name, _FLAGS | os.O_NOFOLLOW, dir_fd=folder)
    finally:
        os.close(folder)


def _content(descriptor: int, limit: int, name: str) -> bytes:
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(errno.EINVAL, NOT_REGULAR, name)
        content = b""
        while len(content) < limit:
            piece = os.read(descriptor, min(_PIECE, limit - len(content)))
            if not piece:
                break
            content += piece
        return content
    finally:
        os.close(descriptor)
