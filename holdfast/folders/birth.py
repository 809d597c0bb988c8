"""When a file was made: it tells two files apart that had the same inode number in turn."""

from __future__ import annotations

import ctypes
import os
import struct

_EMPTY_PATH, _BIRTH, _BYTES = 0x1000, 0x800, 256
_MASK_AT, _BIRTH_AT = 0, 80
_LIBC = ctypes.CDLL(None, use_errno=True)


def born_ns(descriptor: int) -> int:
    """Nanoseconds since 1970; 0 where the file system, the kernel or the C library does not say."""
    statx = getattr(_LIBC, "statx", None)
    if statx is None or not hasattr(os, "O_PATH"):
        return 0
    answer = ctypes.create_string_buffer(_BYTES)
    if statx(descriptor, b"", _EMPTY_PATH, _BIRTH, answer) != 0:
        return 0
    if not struct.unpack_from("=I", answer, _MASK_AT)[0] & _BIRTH:
        return 0
    seconds, nanoseconds = struct.unpack_from("=qI", answer, _BIRTH_AT)
    return int(seconds * 1_000_000_000 + nanoseconds)
