"""openat2: the kernel resolves a path and refuses one that leaves the folder, without a race."""

from __future__ import annotations

import ctypes
import errno
import functools
import os
import struct

NUMBER = 437  # the same on every architecture
NO_XDEV, NO_MAGICLINKS, NO_SYMLINKS, BENEATH, IN_ROOT = 1, 2, 4, 8, 16
TRIES_MAX = 128
_LIBC = ctypes.CDLL(None, use_errno=True)


def openat2(
    folder: int, path: str | bytes, flags: int, *, mode: int = 0, resolve: int = BENEATH
) -> int:
    """A descriptor of `path` below `folder`; EXDEV when it leads out, ENOSYS where it is missing.

    Links of /proc are never followed: they lead anywhere.
    """
    how = struct.pack("=QQQ", flags | os.O_CLOEXEC, mode, resolve | NO_MAGICLINKS)
    name = os.fsencode(path)
    for _ in range(TRIES_MAX):
        descriptor = int(_LIBC.syscall(NUMBER, folder, name, how, ctypes.c_size_t(len(how))))
        if descriptor >= 0:
            return descriptor
        number = ctypes.get_errno()
        # EAGAIN: a rename elsewhere raced with a `..` of this path.
        if number not in (errno.EINTR, errno.EAGAIN):
            break
    raise OSError(number, os.strerror(number), os.fsdecode(path))


@functools.cache
def available() -> bool:
    """Whether this kernel, and the filter we may run under, know the call."""
    try:
        os.close(openat2(-100, "/", os.O_PATH | os.O_DIRECTORY, resolve=0))
    except OSError:
        return False
    return True
