"""Landlock: a process takes from itself all files but those that its rules name."""

import ctypes
import os
import stat
import struct
from collections.abc import Iterable, Sequence

CREATE_RULESET, ADD_RULE, RESTRICT_SELF = 444, 445, 446  # the same on every machine
VERSION_FLAG, RULE_PATH_BENEATH = 1, 1
EXECUTE, WRITE_FILE, READ_FILE, READ_DIR, TRUNCATE, IOCTL_DEV = 1, 2, 4, 8, 1 << 14, 1 << 15
READ = EXECUTE | READ_FILE | READ_DIR
OF_FILES = EXECUTE | WRITE_FILE | READ_FILE | TRUNCATE | IOCTL_DEV
# All rights over files that a version of the interface knows.
RIGHTS = {1: (1 << 13) - 1, 2: (1 << 14) - 1, 3: (1 << 15) - 1, 4: (1 << 15) - 1, 5: (1 << 16) - 1}
NEWEST_RIGHTS = 5
TCP_SINCE, TCP_BIND_AND_CONNECT = 4, 3
SCOPES_SINCE, SIGNALS_AND_ABSTRACT_SOCKETS = 6, 3
PR_SET_NO_NEW_PRIVS = 38
_LIBC = ctypes.CDLL(None, use_errno=True)


def version() -> int:
    """The version of the interface here; 0 where the kernel has none or was not told to use it."""
    try:
        return _call(CREATE_RULESET, None, ctypes.c_size_t(0), VERSION_FLAG)
    except OSError:
        return 0


class Ruleset:
    """What a process keeps; made before the fork, taken on after it."""

    def __init__(self, *, network: bool) -> None:
        known = version()
        if known < 1:
            raise OSError("this kernel has no Landlock")
        self._rights = RIGHTS[min(known, NEWEST_RIGHTS)]
        tcp = 0 if network or known < TCP_SINCE else TCP_BIND_AND_CONNECT
        scopes = 0 if known < SCOPES_SINCE else SIGNALS_AND_ABSTRACT_SOCKETS
        attributes = struct.pack("=QQQ", self._rights, tcp, scopes)
        size = 8 if known < TCP_SINCE else 16 if known < SCOPES_SINCE else 24
        self.descriptor = _call(CREATE_RULESET, attributes, ctypes.c_size_t(size), 0)

    def read(self, places: Iterable[int]) -> None:
        """Keep these open files and folders, and all below, for reading and running."""
        for place in places:
            self._keep(place, READ)

    def write(self, places: Iterable[int]) -> None:
        """Keep these open files and folders, and all below, for everything."""
        for place in places:
            self._keep(place, self._rights)

    def close(self) -> None:
        """Let go of the rules; who took them on keeps them."""
        os.close(self.descriptor)

    def _keep(self, place: int, rights: int) -> None:
        kept = rights & self._rights
        if not stat.S_ISDIR(os.fstat(place).st_mode):
            kept &= OF_FILES
        _call(ADD_RULE, self.descriptor, RULE_PATH_BENEATH, struct.pack("=Qi", kept, place), 0)


def take_on(ruleset: int) -> None:
    """Put this process, and all it will start, under the rules; there is no way back."""
    if _LIBC.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0):
        raise OSError("no_new_privs could not be set")
    _call(RESTRICT_SELF, ruleset, 0)


def opened(paths: Sequence[os.PathLike[str] | str]) -> list[int]:
    """Descriptors (O_PATH) of those that exist."""
    found = []
    for path in paths:
        try:
            found.append(os.open(path, os.O_PATH | os.O_CLOEXEC))
        except OSError:
            continue
    return found


def _call(number: int, *arguments: object) -> int:
    result = int(_LIBC.syscall(number, *arguments))
    if result < 0:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error), "landlock")
    return result
