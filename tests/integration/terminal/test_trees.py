"""Whole process trees: suspended, resumed and ended, also those who would rather not."""

import asyncio
import signal
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from holdfast.terminal import tree
from holdfast.terminal.client import ProcessState, Reason, SpawnRequest, TerminalClient
from tests.support.servers.terminal_hosts import TestHost, collect, eventually, state_of

# A leader, a child, one that ignores the polite stop, and a daemon in a session of its own.
FAMILY = """
trap '' TSTP
(trap '' TSTP TERM HUP; echo $BASHPID > stubborn; while :; do sleep 0.05; done) &
setsid bash -c 'trap "" TERM HUP; echo $$ > daemon; while :; do sleep 0.05; done' &
sleep 1000 & echo $! > child
echo $$ > leader
while :; do sleep 0.05; done
"""
NAMES = ("leader", "child", "stubborn", "daemon")


@pytest.fixture(scope="module")
def host() -> Iterator[TestHost]:
    with TestHost() as running:
        yield running


@pytest.fixture
async def client(host: TestHost) -> AsyncIterator[TerminalClient]:
    async with await host.client() as connected:
        yield connected


async def family(
    host: TestHost, client: TerminalClient, key: str, *, terminal: bool
) -> dict[str, int]:
    """Start the family and return its members' pids."""
    place = host.work / key
    place.mkdir()
    request = host.request(key, FAMILY, cwd=str(place), terminal=terminal, run_id=f"run-{key}")
    await client.spawn(request)
    for name in NAMES:
        await eventually(lambda name=name: _is_written(place / name))  # type: ignore[misc]
    return {name: int((place / name).read_text()) for name in NAMES}


def _is_written(path: Path) -> bool:
    return path.exists() and path.read_text().endswith("\n")


@pytest.mark.req("K-064", "K-147")
@pytest.mark.parametrize("terminal", [False, True])
async def test_suspend_stops_the_whole_tree_and_resume_wakes_it(
    host: TestHost, client: TerminalClient, terminal: bool
) -> None:
    key = f"suspend-{terminal}"
    pids = await family(host, client, key, terminal=terminal)
    stopped = await client.suspend(run_id=f"run-{key}")
    assert stopped.verified
    assert set(pids.values()) <= set(stopped.pids)
    assert {state_of(pid) for pid in stopped.pids} == {"T"}
    assert (await client.info(key)).state is ProcessState.SUSPENDED
    assert (await client.suspend(key=key)).verified, "once more changes nothing"
    await client.resume(run_id=f"run-{key}")
    for pid in pids.values():
        await eventually(lambda pid=pid: state_of(pid) in ("S", "R", "D"))  # type: ignore[misc]
    assert (await client.info(key)).state is ProcessState.RUNNING
    await client.kill(key, grace_s=0)


@pytest.mark.parametrize("suspended", [False, True])
async def test_kill_ends_the_whole_tree_even_a_suspended_one(
    host: TestHost, client: TerminalClient, suspended: bool
) -> None:
    key = f"kill-{suspended}"
    pids = await family(host, client, key, terminal=False)
    if suspended:
        await client.suspend(key=key)
    assert await client.kill(run_id=f"run-{key}", grace_s=0.3) == (key,)
    assert (await client.wait(key)).reason is Reason.CANCELLED
    assert {state_of(pid) for pid in pids.values()} == {""}


async def test_a_program_may_tidy_up_before_it_is_killed(
    host: TestHost, client: TerminalClient
) -> None:
    command = "trap 'echo bye; exit 7' TERM; echo ready; while :; do sleep 0.05; done"
    await client.spawn(host.request("tidy", command))
    await eventually(lambda: _has_output(client, "tidy"))
    await client.kill("tidy", grace_s=30)
    over = await client.wait("tidy")
    assert (over.reason, over.code) == (Reason.CANCELLED, 7)
    assert (await collect(client, "tidy")).endswith(b"bye\n")


async def test_what_a_finished_command_leaves_behind_is_ended(
    host: TestHost, client: TerminalClient
) -> None:
    command = "setsid sh -c 'echo $$ > left; sleep 1000' & while [ ! -s left ]; do :; done"
    await client.spawn(host.request("leaver", command))
    over = await client.wait("leaver")
    assert (over.reason, over.code) == (Reason.EXITED, 0)
    assert state_of(int((host.work / "left").read_text())) == ""


async def test_the_clock_of_a_timeout_stands_still_while_suspended(
    host: TestHost, client: TerminalClient
) -> None:
    await client.spawn(host.request("paused", "sleep 1000", timeout_s=1.0))
    await client.suspend(key="paused")
    # Another process with the same timeout, started later, runs into it meanwhile.
    await client.spawn(host.request("other", "sleep 1000", timeout_s=1.0))
    await client.wait("other")
    assert (await client.info("paused")).state is ProcessState.SUSPENDED
    await client.resume(key="paused")
    assert (await client.wait("paused")).reason is Reason.TIMEOUT


async def test_job_control_works_as_before_after_a_resume(
    client: TerminalClient,
) -> None:
    bash = ("/bin/bash", "--norc", "-i")
    await client.spawn(SpawnRequest(key="jobs", session_id="s", argv=bash, terminal=True))
    await client.write("jobs", b"cat\r")
    leader = (await client.info("jobs")).pid
    assert leader is not None
    await eventually(lambda: len(tree.descendants(leader)) == 2)
    await client.suspend(key="jobs")
    await client.resume(key="jobs")
    await client.write("jobs", b"meow\r")
    # Once as it was typed, and once from the cat, which is still in the foreground.
    await eventually(lambda: _shows(client, "jobs", "meow", times=2))
    await client.write("jobs", b"\x1a")
    await eventually(lambda: _shows(client, "jobs", "Stopped"))
    await client.write("jobs", b"echo $((20 + 22))\r")
    await eventually(lambda: _shows(client, "jobs", "42"))
    await client.close("jobs")


async def test_a_kill_signal_from_elsewhere_is_reported_as_such(
    host: TestHost, client: TerminalClient
) -> None:
    info = await client.spawn(host.request("shot", "sleep 1000"))
    assert info.pid is not None
    tree.send(info.pid, signal.SIGKILL)
    over = await client.wait("shot")
    assert (over.reason, over.signal) == (Reason.SIGNALLED, signal.SIGKILL)


async def _has_output(client: TerminalClient, key: str) -> bool:
    return (await client.info(key)).seq > 0


async def _shows(client: TerminalClient, key: str, text: str, *, times: int = 1) -> bool:
    return (await client.snapshot_text(key)).count(text) == times


async def test_a_second_kill_may_be_less_patient(host: TestHost, client: TerminalClient) -> None:
    command = "trap '' TERM; echo ready; while :; do sleep 0.05; done"
    await client.spawn(host.request("patience", command))
    await eventually(lambda: _has_output(client, "patience"))
    patient = asyncio.ensure_future(client.kill("patience", grace_s=60))
    await client.host()
    await client.kill("patience", grace_s=0)
    assert await patient == ("patience",)
    assert (await client.wait("patience")).signal == signal.SIGKILL
