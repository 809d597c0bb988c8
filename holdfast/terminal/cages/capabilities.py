"""Root without the powers of root: a process gives up every capability for good."""

import ctypes
import os
import struct

PR_CAPBSET_READ, PR_CAPBSET_DROP = 23, 24
CAPABILITY_VERSION_3 = 0x20080522
CAPABILITIES_MAX = 64
_LIBC = ctypes.CDLL(None, use_errno=True)


def give_up() -> None:
    """Drop all of them, and what a program of root would get anew when it is started."""
    if os.geteuid() == 0:
        for number in range(CAPABILITIES_MAX):
            if _LIBC.prctl(PR_CAPBSET_READ, number, 0, 0, 0) == 1:
                _LIBC.prctl(PR_CAPBSET_DROP, number, 0, 0, 0)
    header, none = struct.pack("=Ii", CAPABILITY_VERSION_3, 0), bytes(24)
    if _LIBC.capset(header, none):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), "capset")
