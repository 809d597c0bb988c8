"""Where no namespace is allowed: Landlock and the filter hold a program, by root and by a user."""

import os
import socket
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from holdfast.terminal.cages import landlock
from holdfast.terminal.client import Exit, SpawnRequest, TerminalClient
from holdfast.terminal.errors import CageSpawnFailed
from tests.support.servers.caged_programs import (
    WITHOUT_NAMESPACES,
    before,
    python,
    run_as_nobody,
    run_caged,
)
from tests.support.servers.terminal_hosts import TestHost, eventually

pytestmark = pytest.mark.skipif(landlock.version() < 4, reason="the kernel has no such Landlock")
USERS = ["root", "nobody"] if os.geteuid() == 0 else ["self"]


@pytest.fixture(scope="module", params=USERS)
def host(request: pytest.FixtureRequest) -> Iterator[TestHost]:
    running = TestHost()
    (running.folder / "beside").write_text("the secret")
    if request.param == "nobody":
        run_as_nobody(running)
    running.prefix += before(WITHOUT_NAMESPACES, running.python)
    with running:
        yield running


@pytest.fixture
async def client(host: TestHost) -> AsyncIterator[TerminalClient]:
    async with await host.client() as connected:
        yield connected


async def run(
    host: TestHost, client: TerminalClient, command: str, **fields: Any
) -> tuple[Exit, str]:
    return await run_caged(host, client, command, **fields)


async def test_the_working_directory_can_be_written_and_the_system_used(
    host: TestHost, client: TerminalClient
) -> None:
    command = (
        "echo inside > kept && cat kept; echo z > ~/home && cat ~/home; echo t > $TMPDIR/t;"
        " git init -q r && git -C r status --short; pwd"
    )
    over, output = await run(host, client, command)
    assert (over.code, output) == (0, f"inside\nz\n{host.work}\n")
    info = (await client.list())[-1]
    assert info.cage == "landlock"


@pytest.mark.parametrize(
    "path", ["{folder}/beside", "../beside", "link", "/etc/shadow", "/proc/{pid}/environ"]
)
async def test_reads_outside_are_refused(host: TestHost, client: TerminalClient, path: str) -> None:
    link = host.work / "link"
    link.unlink(missing_ok=True)
    link.symlink_to(host.folder / "beside")
    name = path.format(folder=host.folder, pid=host.pid)
    over, output = await run(host, client, f"cat {name}")
    assert (over.code, over.failure) == (1, None), output
    assert "Permission denied" in output


async def test_writes_links_and_renames_outside_are_refused(
    host: TestHost, client: TerminalClient
) -> None:
    command = (
        "echo x >> ../beside; echo x > ../made; mv ../beside moved; ln ../beside linked;"
        " rm ../beside; truncate -s 0 ../beside; (: >>/proc/sys/kernel/core_pattern)"
    )
    await run(host, client, command)
    assert (host.folder / "beside").read_text() == "the secret"
    assert not (host.folder / "made").exists()
    assert not {"moved", "linked"} & {path.name for path in host.work.iterdir()}
    _, output = await run(host, client, "(: >>/proc/sys/kernel/core_pattern) && echo opened")
    assert "opened" not in output


async def test_no_socket_of_a_network_can_be_made_unless_it_is_given(
    host: TestHost, client: TerminalClient
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        code = (
            "import socket as s\n"
            "for f, k in ((2, 1), (2, 2), (10, 1), (10, 2), (1, 1)):\n"
            " try: c = s.socket(f, k); print('made', f, k)\n except OSError as e: print(e.errno)\n"
            f"try: s.create_connection(('127.0.0.1', {port})); print('connected')\n"
            "except OSError: print('refused')"
        )
        _, output = await run(host, client, python(code))
        assert output.split() == ["97"] * 5 + ["refused"]
        _, output = await run(host, client, python(code), cage={"net": "host"})
        assert output.split()[-1] == "connected"


async def test_the_host_cannot_be_signalled_or_traced(
    host: TestHost, client: TerminalClient
) -> None:
    _, output = await run(
        host, client, f"kill -9 {host.pid} && echo killed; ls /proc/{host.pid}/fd"
    )
    assert "killed" not in output
    assert (await client.host())["pid"] == host.pid
    assert (await client.host())["cage"] == "landlock"


async def test_no_descriptor_leads_outside(host: TestHost, client: TerminalClient) -> None:
    code = "import os\nfor n in range(1024):\n try: os.fstat(n); print(n)\n except OSError: pass"
    for terminal in (True, False):
        _, output = await run(host, client, python(code), terminal=terminal)
        assert output.split() == ["0", "1", "2"]


async def test_exit_codes_signals_and_limits_are_told_as_ever(
    host: TestHost, client: TerminalClient
) -> None:
    assert (await run(host, client, "exit 7"))[0].code == 7
    assert (await run(host, client, "kill -9 $$"))[0].signal == 9
    over, _ = await run(host, client, "sleep 1000", cage={"walltime_s": 0.3})
    assert over.failure == "walltime_exceeded"
    command = "trap 'echo bye; exit 9' TERM HUP; echo ready; while :; do sleep 0.05; done"
    await client.spawn(host.request("gentle", command, cage={}, terminal=True))

    async def shows() -> bool:
        return "ready" in await client.snapshot_text("gentle")

    await eventually(shows)
    await client.kill("gentle", grace_s=30)
    assert (await client.wait("gentle")).code == 9


async def test_its_private_folder_goes_with_the_program(
    host: TestHost, client: TerminalClient
) -> None:
    _, output = await run(host, client, "echo $HOME; test -d $HOME && test -w $HOME")
    assert not Path(output.strip()).exists()


async def test_what_landlock_cannot_hide_is_refused_in_words(
    host: TestHost, client: TerminalClient
) -> None:
    (host.work / "secrets").mkdir(exist_ok=True)
    for kind, word in (("hidden", "hide"), ("read_only", "keep read-only")):
        with pytest.raises(CageSpawnFailed, match=f"Landlock.*{word}"):
            await run(host, client, "true", cage={"fs": {kind: ["secrets"]}})


async def test_a_program_that_is_missing_is_told(host: TestHost, client: TerminalClient) -> None:
    with pytest.raises(CageSpawnFailed, match=r"no such program|No such file"):
        await client.spawn(
            SpawnRequest(key="no", session_id="s", argv=("/no/such",), cwd=str(host.work), cage={})
        )
