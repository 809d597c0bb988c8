"""On a server of root, the programs of an operator run as a user of the machine."""

import os
import pwd
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from holdfast.terminal import tree
from holdfast.terminal.client import TerminalClient
from holdfast.terminal.errors import SpawnFailed
from tests.support.servers.caged_programs import python, run_as_nobody, run_caged
from tests.support.servers.terminal_hosts import TestHost, eventually

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can change users")
NOBODY = "nobody"
CAGES_OR_NONE: tuple[dict[str, Any] | None, ...] = ({}, None)


@pytest.fixture
def host() -> Iterator[TestHost]:
    with TestHost() as running:
        running.folder.chmod(0o755)
        user = pwd.getpwnam(NOBODY)
        os.chown(running.work, user.pw_uid, user.pw_gid)
        yield running


@pytest.fixture
async def client(host: TestHost) -> AsyncIterator[TerminalClient]:
    async with await host.client() as connected:
        yield connected


@pytest.mark.parametrize("cage", [{}, None])
@pytest.mark.parametrize("terminal", [True, False])
async def test_no_process_of_the_program_has_the_real_user_root(
    host: TestHost, client: TerminalClient, terminal: bool, cage: dict[str, object] | None
) -> None:
    user = pwd.getpwnam(NOBODY)
    request = host.request(
        "sleeper", "touch made; sleep 1000", cage=cage, terminal=terminal, unix_user=NOBODY
    )
    info = await client.spawn(request)
    assert info.pid is not None
    await eventually(lambda: (host.work / "made").exists())
    pids = tree.descendants(info.pid)
    assert len(pids) >= (3 if cage is not None else 1)
    for pid in pids:
        status = Path(f"/proc/{pid}/status").read_text()
        rows = dict(line.split(":\t", 1) for line in status.splitlines() if ":\t" in line)
        assert set(rows["Uid"].split()) == {str(user.pw_uid)}
        assert set(rows["Gid"].split()) == {str(user.pw_gid)}
        assert "0" not in rows["Groups"].split()
    assert (host.work / "made").stat().st_uid == user.pw_uid
    await client.kill("sleeper", grace_s=0)
    await eventually(lambda: not any(tree.is_alive(pid) for pid in pids))


async def test_root_can_be_had_in_no_way_by_that_program(
    host: TestHost, client: TerminalClient
) -> None:
    code = (
        "import os\nfor f in (os.setuid, os.setgid):\n try: f(0); print('root')\n"
        " except OSError as e: print(e.errno)"
    )
    for cage in CAGES_OR_NONE:
        _, output = await run_caged(host, client, python(code), cage=cage, unix_user=NOBODY)
        assert "root" not in output
        assert len(output.split()) == 2


async def test_a_terminal_of_that_user_is_its_own(host: TestHost, client: TerminalClient) -> None:
    for cage in CAGES_OR_NONE:
        over, output = await run_caged(
            host, client, "echo hello >$(tty) && stty size", cage=cage, terminal=True, rows=31,
            unix_user=NOBODY,
        )  # fmt: skip
        assert (over.code, output) == (0, "hello\r\n31 80\r\n")


async def test_a_folder_that_the_user_cannot_write_is_refused_in_words(
    host: TestHost, client: TerminalClient
) -> None:
    os.chown(host.work, 0, 0)
    for cage in CAGES_OR_NONE:
        with pytest.raises(SpawnFailed, match=r"cannot be written by nobody.*chown"):
            await run_caged(host, client, "true", cage=cage, unix_user=NOBODY)
    os.chown(host.work, pwd.getpwnam(NOBODY).pw_uid, 0)
    host.folder.chmod(0o700)
    with pytest.raises(SpawnFailed, match="pass the folders above"):
        await run_caged(host, client, "true", unix_user=NOBODY)


@pytest.mark.parametrize(("name", "why"), [("no-such-user", "no user"), ("root", "that is root")])
async def test_users_that_cannot_be_are_refused(
    host: TestHost, client: TerminalClient, name: str, why: str
) -> None:
    with pytest.raises(SpawnFailed, match=why):
        await run_caged(host, client, "true", unix_user=name)


async def test_a_host_that_is_not_root_changes_no_users() -> None:
    host = TestHost()
    run_as_nobody(host)
    with host:
        async with await host.client() as client:
            with pytest.raises(SpawnFailed, match="only a server of root"):
                await run_caged(host, client, "true", unix_user="daemon")
            over, _ = await run_caged(host, client, "touch made")
            assert over.code == 0
