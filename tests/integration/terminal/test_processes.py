"""Processes of the terminal host: run once by key, output and exit kept whoever dies."""

import asyncio
import signal
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from holdfast.terminal.client import ProcessState, Reason, SpawnRequest, TerminalClient
from holdfast.terminal.errors import BadRequest, LimitReached, SpawnFailed, UnknownProcess
from holdfast.terminal.transcript import read_raw
from tests.support.servers.terminal_hosts import TestHost, collect, eventually, state_of


@pytest.fixture(scope="module")
def host() -> Iterator[TestHost]:
    with TestHost(SECRET_KEY="do not tell") as running:
        yield running


@pytest.fixture
async def client(host: TestHost) -> AsyncIterator[TerminalClient]:
    async with await host.client() as connected:
        yield connected


async def test_output_and_exit_code_come_back(host: TestHost, client: TerminalClient) -> None:
    info = await client.spawn(host.request("simple", "echo out; echo err >&2; exit 3"))
    assert info.created
    assert info.cage == "disabled"
    assert await collect(client, "simple") == b"out\nerr\n"
    over = await client.wait("simple")
    assert (over.reason, over.code, over.signal) == (Reason.EXITED, 3, None)
    assert (over.output_bytes, over.output_lines, over.failure) == (8, 2, None)


async def test_a_death_by_signal_is_told_apart(host: TestHost, client: TerminalClient) -> None:
    await client.spawn(host.request("signalled", "kill -USR1 $$"))
    over = await client.wait("signalled")
    assert (over.reason, over.code) == (Reason.SIGNALLED, None)
    assert over.signal == signal.SIGUSR1


async def test_a_key_runs_once_however_often_it_is_spawned(
    host: TestHost, client: TerminalClient
) -> None:
    request = host.request("once", "echo ran >> once; sleep 0.1")
    others = [await host.client() for _ in range(4)]
    infos = await asyncio.gather(*(other.spawn(request) for other in [client, *others] * 3))
    assert [info.created for info in infos].count(True) == 1
    await client.wait("once")
    again = await client.spawn(request)
    assert not again.created
    assert again.exit is not None
    assert (host.work / "once").read_text() == "ran\n"
    for other in others:
        await other.close_connection()


async def test_a_killed_client_loses_nothing_for_the_next(
    host: TestHost, client: TerminalClient
) -> None:
    victim = await asyncio.create_subprocess_exec(
        sys.executable, "-c", VICTIM, host.socket, host.state, host.work
    )
    await eventually((host.work / "got").exists)
    victim.send_signal(signal.SIGKILL)
    await victim.wait()
    (host.work / "go").touch()
    again = await client.spawn(host.request("survivor", "never run"))
    assert not again.created
    expected = b"".join(b"%d\n" % number for number in range(1, 101))
    assert await collect(client, "survivor") == expected
    assert await collect(client, "survivor", 50) == expected[50:]
    assert (await client.wait("survivor")).code == 0
    assert read_raw(await client.transcript("survivor")) == expected


VICTIM = """
import asyncio, sys, pathlib
from holdfast.terminal.client import SpawnRequest, TerminalClient
socket, state, work = sys.argv[1:]
command = "seq 1 50; while [ ! -e go ]; do sleep 0.02; done; seq 51 100"
async def main():
    client = await TerminalClient.connect(socket, state_dir=state, start=False)
    await client.spawn(
        SpawnRequest(key="survivor", session_id="s", command=command, cwd=work)
    )
    async for seq, data in client.output("survivor"):
        if seq + len(data) >= 50:
            pathlib.Path(work, "got").touch()
asyncio.run(main())
"""


async def test_a_timeout_ends_the_process_by_its_name(
    host: TestHost, client: TerminalClient
) -> None:
    await client.spawn(host.request("late", "echo started; sleep 1000", timeout_s=0.2))
    over = await client.wait("late")
    assert over.reason is Reason.TIMEOUT
    assert await collect(client, "late") == b"started\n"


@pytest.mark.req("K-137")
async def test_walltime_counts_without_a_cage_too(host: TestHost, client: TerminalClient) -> None:
    await client.spawn(host.request("slow", "sleep 1000", walltime_s=0.2))
    assert (await client.wait("slow")).failure == "walltime_exceeded"


async def test_programs_do_not_see_the_secrets_of_the_host(
    host: TestHost, client: TerminalClient
) -> None:
    await client.spawn(host.request("env", "env", env={"GIVEN": "yes"}))
    found = await collect(client, "env")
    assert b"GIVEN=yes" in found
    assert b"do not tell" not in found


async def test_a_program_that_cannot_start_leaves_its_key_free(
    host: TestHost, client: TerminalClient
) -> None:
    for terminal in (False, True):
        request = SpawnRequest(
            key="missing", session_id="s", argv=("/no/such/program",), terminal=terminal
        )
        with pytest.raises(SpawnFailed, match="no such program"):
            await client.spawn(request)
    with pytest.raises(SpawnFailed, match="no such directory"):
        await client.spawn(host.request("missing", "true", cwd="/no/such/place"))
    assert (await client.spawn(host.request("missing", "true"))).created


async def test_unknown_keys_and_bad_requests_are_refused(client: TerminalClient) -> None:
    with pytest.raises(UnknownProcess):
        await client.info("nobody")
    with pytest.raises(UnknownProcess):
        await collect(client, "nobody")
    with pytest.raises(BadRequest):
        await client.kill()
    with pytest.raises(BadRequest):
        SpawnRequest(key="", session_id="s", command="true")
    with pytest.raises(BadRequest):
        SpawnRequest(key="both", session_id="s", command="true", argv=("true",))


@pytest.mark.req("K-052")
async def test_a_session_has_at_most_eight_live_terminals(
    host: TestHost, client: TerminalClient
) -> None:
    def wanted(number: int) -> SpawnRequest:
        return host.request(f"eight-{number}", "read x", session_id="eight", terminal=True)

    answers = await asyncio.gather(
        *(client.spawn(wanted(number)) for number in range(9)), return_exceptions=True
    )
    refused = [answer for answer in answers if isinstance(answer, BaseException)]
    assert [type(error) for error in refused] == [LimitReached]
    assert (await client.spawn(host.request("ninth", "true", session_id="eight"))).created
    await client.write("eight-0", b"\r")
    await client.wait("eight-0")
    assert (await client.spawn(wanted(10))).created
    await client.kill(session_id="eight", grace_s=1)
    live = [info for info in await client.list(session_id="eight") if info.exit is None]
    assert live == []


async def test_output_of_a_process_that_is_read_slowly_is_whole(
    host: TestHost, client: TerminalClient
) -> None:
    await client.spawn(host.request("big", "seq 1 1000000"))
    over = await client.wait("big")
    info = await client.info("big")
    assert info.ring_start > 0
    expected = b"".join(b"%d\n" % number for number in range(1, 1_000_001))
    assert await collect(client, "big") == expected
    assert over.output_lines == 1_000_000


async def test_a_closed_process_keeps_its_key_and_transcript(
    host: TestHost, client: TerminalClient
) -> None:
    request = host.request("closed", "echo said; sleep 1000", terminal=True)
    pid = (await client.spawn(request)).pid
    assert pid is not None
    await eventually(lambda: _has_output(client, "closed"))
    over = await client.close("closed")
    assert over.reason is Reason.CANCELLED
    assert state_of(pid) == ""
    assert not (await client.spawn(request)).created
    assert await collect(client, "closed") == b"said\r\n"


async def test_events_tell_of_starts_and_ends(host: TestHost, client: TerminalClient) -> None:
    events = client.events(session_id="eventful")
    first = asyncio.ensure_future(anext(events))
    await eventually(lambda: _is_listening(client))
    await client.spawn(host.request("event", "true", session_id="eventful"))
    kinds = [(await first).kind, (await anext(events)).kind]
    assert kinds == ["spawned", "exited"]
    await events.aclose()


async def _is_listening(client: TerminalClient) -> bool:
    # Requests are answered in order, so after this answer the subscription stands.
    await client.host()
    return True


async def _has_output(client: TerminalClient, key: str) -> bool:
    return (await client.info(key)).seq > 0


async def test_after_the_death_of_the_host_its_processes_are_lost_and_not_run_again() -> None:
    with TestHost() as host:
        async with await host.client() as client:
            await client.spawn(host.request("done", "echo done; exit 4"))
            await client.wait("done")
            command = "echo $$ > pid; echo begun; setsid sleep 1000 & echo $! > daemon; sleep 1000"
            await client.spawn(host.request("lost", command))
            await eventually(lambda: _written(host.work / "daemon"))
            await eventually(lambda: _has_output(client, "lost"))
        host.kill()
        host.start()
        async with await host.client() as client:
            again = await client.spawn(host.request("lost", "echo twice > twice"))
            assert again.exit is not None
            assert again.exit.reason is Reason.LOST
            assert again.state is ProcessState.EXITED
            assert await collect(client, "lost") == b"begun\n"
            assert (await client.wait("done")).code == 4
            assert await collect(client, "done") == b"done\n"
        for name in ("pid", "daemon"):
            pid = int((host.work / name).read_text())
            await eventually(lambda pid=pid: state_of(pid) in ("", "Z"))  # type: ignore[misc]
        assert not (host.work / "twice").exists()


def _written(path: Path) -> bool:
    return path.exists() and path.read_text().endswith("\n")


async def test_a_host_is_started_on_demand_and_only_once() -> None:
    host = TestHost()
    clients = await asyncio.gather(
        *(TerminalClient.connect(host.socket, state_dir=host.state, start=True) for _ in range(3))
    )
    first, *others = [(await client.host())["pid"] for client in clients]
    assert others == [first, first]
    assert host.socket.stat().st_mode & 0o777 == 0o600
    await clients[0].spawn(host.request("alive", "sleep 1000"))
    with pytest.raises(LimitReached, match="still running"):
        await clients[0].shutdown()
    await clients[0].shutdown(force=True)
    for client in clients:
        await client.close_connection()
    await eventually(lambda: state_of(first) == "")
    assert not host.socket.exists()
    host.remove()


async def test_a_host_whose_folder_is_deleted_goes_with_all_it_runs() -> None:
    host = TestHost()
    host.start()
    async with await host.client() as client:
        info = await client.spawn(host.request("alive", "sleep 1000"))
    assert info.pid is not None
    program = info.pid
    host.remove()
    await eventually(lambda: state_of(program) == "")
    await eventually(host.is_over)
