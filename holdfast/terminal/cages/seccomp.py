"""The system calls that a caged program is refused, as a filter in raw BPF: no library is needed.

A list of refusals: programs of every day do not notice it. Numbers of aarch64 are from its header.
"""

import ctypes
import errno
import os
import platform
import struct
from collections.abc import Sequence

from holdfast.terminal.errors import CageUnavailable

ALLOW, REFUSE, KILL = 0x7FFF0000, 0x00050000, 0x80000000
LOAD, EQUAL, AT_LEAST, ANY_BIT, RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
NUMBER_AT, MACHINE_AT, ARGUMENT_AT, ARGUMENT_BYTES = 0, 4, 16, 8
X32_CALLS = 0x40000000
# NEWNS NEWCGROUP NEWUTS NEWIPC NEWUSER NEWPID NEWNET NEWTIME
NEW_NAMESPACES = 0x7E020080
SETUID_BITS = 0o6000
# With either of these, open() makes a file and takes its mode from an argument.
O_CREATE_BITS = os.O_CREAT | 0o20000000
TIOCSTI, TIOCLINUX = 0x5412, 0x541C
PR_SET_NO_NEW_PRIVS, PR_SET_SECCOMP, MODE_FILTER = 38, 22, 2
AF_UNIX, AF_INET, AF_INET6, AF_NETLINK = 1, 2, 10, 16
FAMILIES = (AF_UNIX, AF_INET, AF_INET6, AF_NETLINK)
# Where no network namespace holds the program: what is left cannot leave the machine.
FAMILIES_WITHOUT_NETWORK = (AF_NETLINK,)

# Of each machine: what the kernel calls it, and which column of the tables is its own.
MACHINES = {"x86_64": (0xC000003E, 0), "aarch64": (0xC00000B7, 1)}
Numbers = tuple[int | None, int | None]
TRACING: dict[str, Numbers] = {
    "ptrace": (101, 117),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "kcmp": (312, 272),
    "pidfd_getfd": (438, 438),
    "process_madvise": (440, 440),
}
NOT_PERMITTED: dict[str, Numbers] = {
    **{"add_key": (248, 217), "request_key": (249, 218), "keyctl": (250, 219)},
    **{"bpf": (321, 280), "perf_event_open": (298, 241), "userfaultfd": (323, 282)},
    **{"lookup_dcookie": (212, 18), "syslog": (103, 116), "acct": (163, 89)},
    **{"kexec_load": (246, 104), "kexec_file_load": (320, 294), "reboot": (169, 142)},
    **{"init_module": (175, 105), "finit_module": (313, 273), "delete_module": (176, 106)},
    **{"swapon": (167, 224), "swapoff": (168, 225), "quotactl": (179, 60)},
    **{"quotactl_fd": (443, 443), "settimeofday": (164, 170), "clock_settime": (227, 112)},
    **{"clock_adjtime": (305, 266), "adjtimex": (159, 171)},
    **{"unshare": (272, 97), "setns": (308, 268), "chroot": (161, 51)},
    **{"mount": (165, 40), "umount2": (166, 39), "pivot_root": (155, 41)},
    **{"open_tree": (428, 428), "move_mount": (429, 429), "fsopen": (430, 430)},
    **{"fsconfig": (431, 431), "fsmount": (432, 432), "fspick": (433, 433)},
    **{"mount_setattr": (442, 442), "open_tree_attr": (467, 467)},
    **{"open_by_handle_at": (304, 265), "name_to_handle_at": (303, 264)},
    **{"fanotify_init": (300, 262), "move_pages": (279, 239), "migrate_pages": (256, 238)},
    **{"mbind": (237, 235), "set_mempolicy": (238, 237)},
    **{"iopl": (172, None), "ioperm": (173, None), "modify_ldt": (154, None)},
    **{"uselib": (134, None), "vhangup": (153, 58), "nfsservctl": (180, 42)},
    **{"sethostname": (170, 161), "setdomainname": (171, 162)},
}
# Said to be missing, so that programs fall back: clone3 and openat2 hide flags behind a pointer,
# io_uring does what it does without any further call.
MISSING: dict[str, Numbers] = {
    "clone3": (435, 435),
    "openat2": (437, 437),
    "io_uring_setup": (425, 425),
    "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427),
}
CLONE, IOCTL, SOCKET, PRLIMIT = (56, 220), (16, 29), (41, 198), (302, 261)
# Calls that give a file a mode, and which argument that is: a cage of root would otherwise leave
# programs of root behind that anybody may run.
MODES: tuple[tuple[Numbers, int], ...] = (
    ((90, None), 1),  # chmod
    ((91, 52), 1),  # fchmod
    ((268, 53), 2),  # fchmodat
    ((452, 452), 2),  # fchmodat2
    ((133, None), 1),  # mknod
    ((259, 33), 2),  # mknodat
    ((85, None), 1),  # creat
    ((83, None), 1),  # mkdir
    ((258, 34), 2),  # mkdirat
)
OPENS: tuple[tuple[Numbers, int], ...] = (((2, None), 1), ((257, 56), 2))  # open, openat


def filter_bytes(
    *, ptrace: bool = False, families: Sequence[int] = FAMILIES, machine: str | None = None
) -> bytes:
    """The filter as the kernel and bubblewrap take it; CageUnavailable on other machines."""
    name = machine or platform.machine()
    if name not in MACHINES:
        raise CageUnavailable(f"no cage can be built: there is no list of system calls for {name}")
    audit, column = MACHINES[name]
    program = _Program(column)
    program.begin(audit)
    refused = NOT_PERMITTED if ptrace else {**TRACING, **NOT_PERMITTED}
    for numbers in refused.values():
        program.refuse(numbers, errno.EPERM)
    for numbers in MISSING.values():
        program.refuse(numbers, errno.ENOSYS)
    program.refuse_bits(CLONE, 0, NEW_NAMESPACES)
    program.refuse_values(IOCTL, 1, (TIOCSTI, TIOCLINUX))
    program.allow_values(SOCKET, 0, families, errno.EAFNOSUPPORT)
    for numbers, argument in MODES:
        program.refuse_bits(numbers, argument, SETUID_BITS)
    for numbers, argument in OPENS:
        program.refuse_created(numbers, argument)
    # The limits of other processes.
    program.allow_values(PRLIMIT, 0, (0,), errno.EPERM)
    return program.end()


def memfd(program: bytes) -> int:
    """A descriptor from which bubblewrap reads the filter."""
    descriptor = os.memfd_create("seccomp", os.MFD_CLOEXEC)
    os.write(descriptor, program)
    os.lseek(descriptor, 0, os.SEEK_SET)
    return descriptor


def install(program: bytes) -> None:
    """Put this process, and all it will start, under the filter; there is no way back."""
    libc = ctypes.CDLL(None, use_errno=True)
    instructions = ctypes.create_string_buffer(program, len(program))
    count = len(program) // struct.calcsize("=HBBI")
    header = struct.pack("HxxxxxxP", count, ctypes.addressof(instructions))
    if libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) or libc.prctl(
        PR_SET_SECCOMP, MODE_FILTER, header, 0, 0
    ):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), "seccomp")


class _Program:
    """Instructions, added call by call; each block leaves the call's number loaded."""

    def __init__(self, column: int) -> None:
        self._column = column
        self._steps: list[tuple[int, int, int, int]] = []

    def begin(self, audit: int) -> None:
        # A foreign ABI (i386 on x86-64) has other numbers.
        self._step(LOAD, MACHINE_AT)
        self._step(EQUAL, audit, 1, 0)
        self._step(RETURN, KILL)
        self._step(LOAD, NUMBER_AT)
        if self._column == 0:
            self._step(AT_LEAST, X32_CALLS, 0, 1)
            self._refusal(errno.ENOSYS)

    def refuse(self, numbers: Numbers, error: int) -> None:
        number = numbers[self._column]
        if number is not None:
            self._step(EQUAL, number, 0, 1)
            self._refusal(error)

    def refuse_bits(self, numbers: Numbers, argument: int, bits: int) -> None:
        """Refuse the call when any of the bits is set in an argument."""
        self._call(numbers, argument, [(ANY_BIT, bits, 0, 1), (RETURN, REFUSE | errno.EPERM, 0, 0)])

    def refuse_values(self, numbers: Numbers, argument: int, values: Sequence[int]) -> None:
        """Refuse the call when an argument is one of the values."""
        steps = [(EQUAL, value, len(values) - at, 0) for at, value in enumerate(values)]
        allowed = (RETURN, ALLOW, 0, 0)
        self._call(numbers, argument, [*steps, allowed, (RETURN, REFUSE | errno.EPERM, 0, 0)])

    def allow_values(
        self, numbers: Numbers, argument: int, values: Sequence[int], error: int
    ) -> None:
        """Refuse the call unless an argument is one of the values."""
        steps = [(EQUAL, value, len(values) - at, 0) for at, value in enumerate(values)]
        self._call(numbers, argument, [*steps, (RETURN, REFUSE | error, 0, 0)])

    def refuse_created(self, numbers: Numbers, argument: int) -> None:
        """Refuse to make a file by opening it when its mode has setuid bits."""
        mode_at = ARGUMENT_AT + ARGUMENT_BYTES * (argument + 1)
        self._call(
            numbers,
            argument,
            [
                (ANY_BIT, O_CREATE_BITS, 0, 3),
                (LOAD, mode_at, 0, 0),
                (ANY_BIT, SETUID_BITS, 0, 1),
                (RETURN, REFUSE | errno.EPERM, 0, 0),
            ],
        )

    def end(self) -> bytes:
        self._step(RETURN, ALLOW)
        return b"".join(
            struct.pack("=HBBI", code, if_true, if_false, value)
            for code, value, if_true, if_false in self._steps
        )

    def _call(
        self, numbers: Numbers, argument: int, steps: list[tuple[int, int, int, int]]
    ) -> None:
        """Steps for one call on one of its arguments (the low half); in the end it is allowed."""
        number = numbers[self._column]
        if number is None:
            return
        self._step(EQUAL, number, 0, len(steps) + 2)
        self._step(LOAD, ARGUMENT_AT + ARGUMENT_BYTES * argument)
        self._steps += steps
        self._step(RETURN, ALLOW)

    def _refusal(self, error: int) -> None:
        self._step(RETURN, REFUSE | error)

    def _step(self, code: int, value: int, if_true: int = 0, if_false: int = 0) -> None:
        self._steps.append((code, value, if_true, if_false))
