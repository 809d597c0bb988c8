"""Limits hold: programs take more than they may, in every way, and are stopped with the reason.

Each attack runs where the kernel's control groups hold the cage, and where the host has to watch.
"""

import os
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from holdfast.terminal.cages import cgroups
from holdfast.terminal.cages.finding import probe
from holdfast.terminal.cages.limits import CageLimits, machine_memory_mb, machine_pids
from holdfast.terminal.client import Exit, Reason, TerminalClient
from holdfast.terminal.errors import BadCage, CageUnavailable
from tests.support.servers.terminal_hosts import TestHost, eventually, state_of

MEMORY_MB = 96
PIDS = 40
GIB = 1024**3


def _cages_work() -> bool:
    try:
        probe()
    except CageUnavailable:
        return False
    return True


def _kinds() -> list[str]:
    """`watched` is always there; `kernel` where this machine lets us make control groups."""
    trial = Path(f"/tmp/hft-trial-{os.getpid()}")
    trial.mkdir()
    try:
        groups = cgroups.Cgroups(trial, wanted=True)
        kernel = groups.has("memory") and groups.has("pids")
        groups.close()
    finally:
        (trial / cgroups.RECORD).unlink(missing_ok=True)
        trial.rmdir()
    return ["kernel", "watched"] if kernel else ["watched"]


pytestmark = pytest.mark.skipif(not _cages_work(), reason="this machine cannot build cages")


@pytest.fixture(scope="module", params=_kinds())
def host(request: pytest.FixtureRequest) -> Iterator[TestHost]:
    limits = CageLimits(cgroups=request.param == "kernel", file_mb=2048, tmp_mb=64)
    with TestHost(**limits.to_environment()) as running:
        yield running


@pytest.fixture
async def client(host: TestHost) -> AsyncIterator[TerminalClient]:
    async with await host.client() as connected:
        yield connected


async def attack(host: TestHost, client: TerminalClient, program: str, **cage: int) -> Exit:
    """How a Python program ends that takes what it may not have, and then waits."""
    (host.work / "attack.py").write_text(f"import os, sys, time\n{program}\ntime.sleep(1000)\n")
    limits = {"memory_mb": MEMORY_MB, "pids": PIDS, **cage}
    key = f"{len(await client.list())}"
    await client.spawn(host.request(key, "/usr/bin/python3 attack.py", cage=limits))
    return await client.wait(key)


PRIVATE = "kept = bytearray(os.urandom(1)) * {gib}"
SHARED = """
import mmap
kept = mmap.mmap(-1, {gib}, mmap.MAP_SHARED | mmap.MAP_ANONYMOUS)
for place in range(0, {gib}, 4096): kept[place] = 1
"""
MEMFD = """
kept = os.memfd_create("kept")
for _ in range(1024): os.write(kept, b"x" * 1048576)
"""
MANY_MEMFDS = """
kept = [os.memfd_create("kept") for _ in range(64)]
for file in kept: os.write(file, b"x" * 1048576 * 16)
"""
MAPPED_MEMFD = """
import mmap
kept = os.memfd_create("kept"); os.truncate(kept, {gib})
kept = mmap.mmap(kept, {gib})
for place in range(0, {gib}, 4096): kept[place] = 1
"""
CHILDREN = """
for _ in range(16):
    if os.fork() == 0: break
kept = b"x" * 1048576 * 32
"""
# Each tmpfs of a cage is smaller than the memory limit, all of them together are not.
TMPFS = """
for folder in ("/dev/shm", "/tmp", "/var/tmp", "/run"):
    try:
        with open(folder + "/kept", "wb") as file:
            for _ in range(60): file.write(b"x" * 1048576)
    except OSError as error: print(error, flush=True)
"""
EMPTY_FILES = """
for folder in ("/dev/shm", "/tmp", "/var/tmp", "/run"):
    for number in range(100_000):
        try: os.close(os.open(f"{{folder}}/{{number}}", os.O_CREAT))
        except OSError: break
"""
MEMORY_ATTACKS = {
    "private": PRIVATE,
    "shared_anonymous": SHARED,
    "memfd": MEMFD,
    "many_memfds": MANY_MEMFDS,
    "mapped_memfd": MAPPED_MEMFD,
    "children": CHILDREN,
    "tmpfs": TMPFS,
    "empty_files": EMPTY_FILES,
}


@pytest.mark.req("K-138")
@pytest.mark.parametrize("name", MEMORY_ATTACKS)
async def test_memory_of_every_kind_is_limited_and_the_exit_says_so(
    host: TestHost, client: TerminalClient, name: str
) -> None:
    over = await attack(host, client, MEMORY_ATTACKS[name].format(gib=GIB))
    assert (over.reason, over.failure) == (Reason.MEMORY, "memory_exceeded")
    assert f"memory limit of {MEMORY_MB} MB" in over.message


FORKS = "for _ in range(400):\n  try:\n    if os.fork() == 0: break\n  except OSError: pass"
THREADS = """
import threading
for _ in range(400):
    try: threading.Thread(target=time.sleep, args=(1000,)).start()
    except RuntimeError: pass
"""


@pytest.mark.parametrize("program", [FORKS, THREADS], ids=["processes", "threads"])
async def test_processes_and_threads_are_limited_and_the_exit_says_so(
    host: TestHost, client: TerminalClient, program: str
) -> None:
    over = await attack(host, client, program, memory_mb=1024)
    assert (over.reason, over.failure) == (Reason.PIDS, "pids_exceeded")
    assert f"limit of {PIDS} processes and threads" in over.message


async def test_shared_memory_is_counted_once_however_many_map_it(
    host: TestHost, client: TerminalClient
) -> None:
    program = """
import mmap
file = os.open("/dev/shm/kept", os.O_RDWR | os.O_CREAT); os.truncate(file, 48 * 1048576)
memory = os.memfd_create("kept"); os.truncate(memory, 8 * 1048576)
maps = [mmap.mmap(file, 48 * 1048576), mmap.mmap(memory, 8 * 1048576)]
for kept in maps:
    for place in range(0, len(kept), 4096): kept[place] = 1
for _ in range(4):
    if os.fork() == 0: time.sleep(1000)
print("all mapped", flush=True)
time.sleep(0.5)
os._exit(7)
"""
    over = await attack(host, client, program)
    assert (over.reason, over.code) == (Reason.EXITED, 7)


async def test_what_is_within_the_limits_is_left_alone(
    host: TestHost, client: TerminalClient
) -> None:
    program = "kept = b'x' * 1048576 * 32\nif os.fork(): os.wait()\nos._exit(5)"
    over = await attack(host, client, program)
    assert (over.reason, over.code, over.message) == (Reason.EXITED, 5, "")


async def test_a_tree_in_its_limits_can_be_suspended_and_resumed(
    host: TestHost, client: TerminalClient
) -> None:
    command = "sleep 1000 & echo ready > ready; wait"
    await client.spawn(host.request("stopped", command, cage={"pids": PIDS}))
    await eventually((host.work / "ready").exists)
    stopped = await client.suspend(key="stopped")
    assert {state_of(pid) for pid in stopped.pids} == {"T"}
    resumed = await client.resume(key="stopped")
    assert sorted(resumed.pids) == sorted(stopped.pids)
    assert "T" not in {state_of(pid) for pid in stopped.pids}
    await client.kill("stopped", grace_s=0)


async def test_a_project_file_cannot_ask_for_more_than_the_machine_has(
    host: TestHost, client: TerminalClient
) -> None:
    memory, pids = machine_memory_mb(), machine_pids()
    with pytest.raises(BadCage, match=f"memory_mb is {memory + 1}, but this machine has {memory}"):
        await client.spawn(host.request("much", "true", cage={"memory_mb": memory + 1}))
    with pytest.raises(BadCage, match=f"pids is {pids + 1}, but this machine has {pids}"):
        await client.spawn(host.request("many", "true", cage={"pids": pids + 1}))


async def test_a_file_above_the_limit_is_refused_and_the_exit_says_so() -> None:
    limits = CageLimits(file_mb=8)
    with TestHost(**limits.to_environment()) as host:
        async with await host.client() as client:
            command = "exec head -c 20000000 /dev/zero > big"
            await client.spawn(host.request("big", command, cage={}))
            over = await client.wait("big")
            assert (over.reason, over.failure) == (Reason.DISK, "disk_exceeded")
            assert "a file above the limit of 8 MB" in over.message
            assert (host.work / "big").stat().st_size == 8 * 1024 * 1024


async def test_many_files_are_too_much_for_the_disk_together() -> None:
    limits = CageLimits(file_mb=8, disk_mb=32)
    with TestHost(**limits.to_environment()) as host:
        async with await host.client() as client:
            # Written by children that are over when somebody looks.
            command = "for i in {1..20}; do head -c 4000000 /dev/zero > $i; done; sleep 1000"
            await client.spawn(host.request("many", command, cage={}))
            over = await client.wait("many")
            assert (over.reason, over.failure) == (Reason.DISK, "disk_exceeded")
            assert "more than 32 MB written to disk" in over.message


def groups_of(host: TestHost) -> list[Path]:
    """The folders of the host's control groups, wherever they are mounted."""
    record = host.state / cgroups.RECORD
    pools = [Path(line) for line in record.read_text().splitlines()]
    return [group for pool in pools if pool.is_dir() for group in pool.iterdir() if group.is_dir()]


needs_cgroups = pytest.mark.skipif("kernel" not in _kinds(), reason="no control groups for us here")


@needs_cgroups
async def test_groups_are_removed_with_their_tree_and_the_pool_with_the_host() -> None:
    with TestHost() as host:
        async with await host.client() as client:
            await client.spawn(host.request("one", "sleep 1000", cage={}))
            assert len(groups_of(host)) == 2
            await client.kill("one", grace_s=0)
            await eventually(lambda: groups_of(host) == [])
            with pytest.raises(BadCage):
                await client.spawn(host.request("two", "true", cage={"nonsense": 1}))
            assert groups_of(host) == []
        host.stop()
        pools = (host.state / cgroups.RECORD).read_text().splitlines()
        assert len(pools) == 2
        assert not any(Path(pool).exists() for pool in pools)


@needs_cgroups
async def test_groups_of_a_killed_host_are_removed_by_the_next() -> None:
    with TestHost() as host:
        async with await host.client() as client:
            await client.spawn(host.request("one", "sleep 1000", cage={}))
        groups = groups_of(host)
        host.kill()
        assert all(group.is_dir() for group in groups)
        host.start()
        assert not any(group.exists() or group.parent.exists() for group in groups)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")
@pytest.mark.parametrize("program", [FORKS, THREADS], ids=["processes", "threads"])
async def test_a_plain_user_is_held_by_rlimits_and_by_watching(program: str) -> None:
    host = TestHost("setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups")
    for folder in (host.folder, host.work):
        os.chown(folder, 65534, 65534)
    with host:
        async with await host.client() as client:
            over = await attack(host, client, program, memory_mb=1024)
            assert over.failure == "pids_exceeded"
            over = await attack(host, client, MEMFD)
            assert over.failure == "memory_exceeded"
            assert not (host.state / cgroups.RECORD).read_text()
