"""The filter of system calls: what it refuses, class by class, and what goes on under it."""

import errno
import json
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from holdfast.terminal.cages import seccomp
from holdfast.terminal.client import TerminalClient
from tests.support.servers.caged_programs import python, run_caged
from tests.support.servers.terminal_hosts import TestHost

COLUMN = seccomp.MACHINES[platform.machine()][1]
# Each call with arguments that no kernel takes, so that without a filter nothing happens either.
CALLER = """
import ctypes, json, os, sys
wanted = json.load(sys.stdin)
os.setsid()
if wanted["filter"]:
    from holdfast.terminal.cages import seccomp
    seccomp.install(seccomp.filter_bytes(ptrace=wanted["ptrace"]))
libc = ctypes.CDLL(None, use_errno=True)
found = {}
for name, number in wanted["calls"].items():
    result = libc.syscall(number, *[ctypes.c_long(-1)] * 6)
    found[name] = ctypes.get_errno() if result == -1 else 0
print(json.dumps(found))
"""

HEADERS = (
    Path("/usr/include/x86_64-linux-gnu/asm/unistd_64.h"),
    Path("/usr/include/asm-generic/unistd.h"),
)
REFUSED = """
ptrace process_vm_readv process_vm_writev kcmp pidfd_getfd process_madvise add_key request_key
keyctl bpf perf_event_open userfaultfd lookup_dcookie syslog acct kexec_load kexec_file_load reboot
init_module finit_module delete_module swapon swapoff quotactl quotactl_fd settimeofday
clock_settime clock_adjtime adjtimex unshare setns chroot mount umount2 pivot_root open_tree
move_mount fsopen fsconfig fsmount fspick mount_setattr open_tree_attr open_by_handle_at
name_to_handle_at fanotify_init move_pages migrate_pages mbind set_mempolicy iopl ioperm modify_ldt
uselib vhangup nfsservctl sethostname setdomainname
clone3 openat2 io_uring_setup io_uring_enter io_uring_register
"""


@pytest.fixture(scope="module")
def host() -> Iterator[TestHost]:
    with TestHost() as running:
        yield running


@pytest.fixture
async def client(host: TestHost) -> AsyncIterator[TerminalClient]:
    async with await host.client() as connected:
        yield connected


def numbers(*tables: dict[str, seccomp.Numbers]) -> dict[str, int]:
    """The calls of these tables that this machine has."""
    return {
        name: number
        for table in tables
        for name, pair in table.items()
        if (number := pair[COLUMN]) is not None
    }


def called(calls: dict[str, int], *, filtered: bool, ptrace: bool = False) -> dict[str, int]:
    """The errors of the calls, made by a process of their own."""
    wanted = json.dumps({"calls": calls, "filter": filtered, "ptrace": ptrace})
    command = [sys.executable, "-c", CALLER]
    done = subprocess.run(command, input=wanted.encode(), capture_output=True, check=True)
    found: dict[str, int] = json.loads(done.stdout)
    return found


def test_the_list_has_every_call_and_each_its_number_of_the_kernels_header() -> None:
    listed = {**seccomp.TRACING, **seccomp.NOT_PERMITTED, **seccomp.MISSING}
    assert set(REFUSED.split()) == set(listed)
    for column, header in enumerate(HEADERS):
        if header.exists():
            found = re.findall(r"#define __NR(?:3264)?_(\w+)\s+(\d+)", header.read_text())
            known = {name: int(number) for name, number in found}
            # A header may be older than the list.
            given = {name: pair[column] for name, pair in listed.items() if name in known}
            assert given == {name: known[name] for name in given}


def test_every_listed_call_is_refused_and_none_is_without_the_filter() -> None:
    refused = numbers(seccomp.TRACING, seccomp.NOT_PERMITTED)
    missing = numbers(seccomp.MISSING)
    under = called({**refused, **missing}, filtered=True)
    assert set(under) == {*refused, *missing}
    assert {name for name in refused if under[name] != errno.EPERM} == set()
    assert {name for name in missing if under[name] != errno.ENOSYS} == set()
    # The trial itself can tell the difference.
    free = called({**refused, **missing}, filtered=False)
    assert sum(free[name] != errno.EPERM for name in refused) > len(refused) * 0.8
    assert any(free[name] != errno.ENOSYS for name in missing)


def test_with_ptrace_only_tracing_is_given_back() -> None:
    tracing, others = numbers(seccomp.TRACING), numbers(seccomp.NOT_PERMITTED)
    under = called({**tracing, **others}, filtered=True, ptrace=True)
    assert {name for name in tracing if under[name] == errno.EPERM} == set()
    assert {name for name in others if under[name] != errno.EPERM} == set()


@pytest.mark.parametrize("machine", seccomp.MACHINES)
def test_the_filter_of_each_machine_is_one_the_kernel_takes(machine: str) -> None:
    program = seccomp.filter_bytes(machine=machine)
    code = (
        "import os, sys; from holdfast.terminal.cages import seccomp;"
        "seccomp.install(sys.stdin.buffer.read()); os.write(1, b'alive')"
    )
    done = subprocess.run([sys.executable, "-c", code], input=program, capture_output=True)
    own = machine == platform.machine()
    # The calls of another machine have other numbers: whoever makes them is killed.
    assert (done.stdout == b"alive") is own


@pytest.mark.parametrize(
    "attempt",
    [
        "os.chmod('f', 0o4755)",
        "os.chmod('f', 0o2755)",
        "os.fchmod(os.open('f', 0), 0o4755)",
        "os.chmod('f', 0o4755, dir_fd=os.open('.', 0))",
        "os.open('g', os.O_CREAT | os.O_WRONLY, 0o4755)",
        "os.open('.', os.O_TMPFILE | os.O_WRONLY, 0o4755)",
        "os.mknod('h', 0o104755)",
        "os.mkdir('d', 0o2755)",
        "os.unshare(0x10000000) if hasattr(os, 'unshare') else call('unshare', 0x10000000)",
        "__import__('fcntl').ioctl(0, 0x5412, b'x')",
        "__import__('fcntl').ioctl(0, 0x541c, b'x')",
        "__import__('resource').prlimit(1, 7)",
        "__import__('socket').socket(17, 3)",
        "__import__('socket').socket(38, 5)",
        "__import__('socket').socket(40, 1)",
    ],
)
async def test_what_a_program_tries_is_refused(
    host: TestHost, client: TerminalClient, attempt: str
) -> None:
    code = (
        "import ctypes, os\ndef call(*a):\n r = getattr(ctypes.CDLL(None, use_errno=True), a[0])"
        "(*a[1:])\n if r < 0: raise OSError(ctypes.get_errno(), a[0])\n"
        f"open('f', 'w').close()\ntry: {attempt}\n"
        "except OSError as e: print('refused', e.errno)\nelse: print('done')"
    )
    _, output = await run_caged(host, client, python(code), terminal=True)
    expected = errno.EAFNOSUPPORT if "socket" in attempt else errno.EPERM
    assert output.strip() == f"refused {expected}"
    assert not [path for path in host.work.iterdir() if path.stat().st_mode & 0o6000]


async def test_a_process_with_new_namespaces_cannot_be_cloned(
    host: TestHost, client: TerminalClient
) -> None:
    number = seccomp.CLONE[COLUMN]
    code = (
        "import ctypes, os\nlibc = ctypes.CDLL(None, use_errno=True)\n"
        "for flag in (0x20000, 0x2000000, 0x4000000, 0x8000000, 0x10000000, 0x20000000,"
        f" 0x40000000):\n r = libc.syscall({number}, flag | 17, 0, 0, 0, 0)\n"
        " if r == 0: os._exit(0)\n print(r, ctypes.get_errno())"
    )
    _, output = await run_caged(host, client, python(code))
    assert output.splitlines() == ["-1 1"] * 7


async def test_tracing_reaches_the_cages_own_programs_only_when_the_policy_says_so(
    host: TestHost, client: TerminalClient
) -> None:
    code = (
        "import ctypes, os, signal, time\npid = os.fork()\nif pid == 0:\n time.sleep(1000)\n"
        "r = ctypes.CDLL(None).ptrace(16, pid, 0, 0)\nos.kill(pid, 9)\nprint(r)"
    )
    assert (await run_caged(host, client, python(code)))[1].strip() == "-1"
    assert (await run_caged(host, client, python(code), cage={"ptrace": True}))[1].strip() == "0"


PROGRAMS = {
    "git": "git init -q r && cd r && git -c user.name=a -c user.email=a@b commit -q"
    " --allow-empty -m x && git gc -q && git log --format=%s",
    "gcc": "echo 'int main(void){return 0;}' > a.c && gcc a.c -o a && ./a && echo x",
    "node": "node -e 'new (require(`worker_threads`).Worker)(`console.log(\"x\")`, {eval: true})'",
    "threads": python(
        "import threading, multiprocessing as m, sqlite3\n"
        "t = [threading.Thread(target=len, args=('',)) for _ in range(20)]\n"
        "[i.start() for i in t]; [i.join() for i in t]\n"
        "p = m.get_context('fork').Pool(3); r = p.map(str, [1, 2]); p.close(); p.join()\n"
        "d = sqlite3.connect('d.db'); d.execute('create table if not exists t (a)'); d.commit()\n"
        "print('x' if r == ['1', '2'] else r)"
    ),
    "tar": "mkdir -p t && echo x > t/f && tar cf t.tar t && tar xOf t.tar t/f",
}


@pytest.mark.parametrize("name", PROGRAMS)
async def test_programs_of_every_day_run_under_it(
    host: TestHost, client: TerminalClient, name: str
) -> None:
    if name != "threads" and shutil.which(name) is None:
        pytest.skip(f"{name} is not on this machine")
    over, output = await run_caged(host, client, PROGRAMS[name])
    assert (over.code, output.strip()) == (0, "x"), output
