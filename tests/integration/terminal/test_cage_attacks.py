"""A caged program attacks the machine it runs on: the kernel, the host, what others left open."""

import json
import os
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from holdfast.terminal.cages.confinement import OPEN, Wanted
from holdfast.terminal.cages.finding import probe
from holdfast.terminal.cages.hiding import Hiding
from holdfast.terminal.cages.place import opened_place
from holdfast.terminal.cages.policy import CagePolicy
from holdfast.terminal.client import TerminalClient
from tests.support.servers.caged_programs import python, run_caged
from tests.support.servers.terminal_hosts import TestHost


@pytest.fixture(scope="module")
def host() -> Iterator[TestHost]:
    with TestHost(SECRET_NAME="kept out") as running:
        yield running


@pytest.fixture
async def client(host: TestHost) -> AsyncIterator[TerminalClient]:
    async with await host.client() as connected:
        yield connected


@pytest.mark.parametrize("name", ["kernel/core_pattern", "kernel/panic", "vm/overcommit_memory"])
async def test_settings_of_the_kernel_cannot_be_opened_for_writing(
    host: TestHost, client: TerminalClient, name: str
) -> None:
    command = f"test -r /proc/sys/{name} && (: >>/proc/sys/{name}) && echo opened"
    over, output = await run_caged(host, client, command)
    assert over.code != 0
    assert "opened" not in output
    assert "Read-only file system" in output or "Permission denied" in output


async def test_the_program_has_no_descriptor_but_the_three(
    host: TestHost, client: TerminalClient
) -> None:
    opened = os.open(host.folder, os.O_RDONLY)
    code = (
        "import os\nfor n in range(1024):\n try: os.fstat(n); print('open', n)\n"
        " except OSError: pass"
    )
    for terminal in (False, True):
        _, output = await run_caged(host, client, python(code), terminal=terminal)
        assert output.split() == ["open", "0", "open", "1", "open", "2"]
    os.close(opened)


async def test_what_proc_tells_of_the_whole_machine_is_empty(
    host: TestHost, client: TerminalClient
) -> None:
    command = "for f in kcore kallsyms keys timer_list; do head -c 9 /proc/$f; done; echo end"
    _, output = await run_caged(host, client, command)
    told = [line for line in output.splitlines() if not line.startswith("head: cannot open")]
    assert told == ["end"]
    assert "kallsyms' for reading: Permission denied" in output


async def test_the_first_process_inside_has_no_secret_in_its_environment(
    host: TestHost, client: TerminalClient
) -> None:
    _, output = await run_caged(host, client, "tr '\\0' '\\n' < /proc/1/environ; echo; env")
    assert "USER=cage" in output
    assert "kept out" not in output


async def test_no_namespace_can_be_made_inside(host: TestHost, client: TerminalClient) -> None:
    over, output = await run_caged(host, client, "unshare -U true; unshare -Ur id -u")
    assert over.code != 0
    assert "0\n" not in output


def test_the_limit_of_namespaces_holds_without_the_filter(tmp_path: Path) -> None:
    with ExitStack() as cleaning:
        place = cleaning.enter_context(opened_place(tmp_path, "", hidden=()))
        hiding = cleaning.enter_context(closing(Hiding()))
        argv = ["unshare", "-U", "true"]
        wanted = Wanted(policy=CagePolicy(), argv=argv, place=place, hiding=hiding)
        confinement = probe().confine(wanted, cleaning)
        assert confinement.status is not None
        assert confinement.gate is not None
        cleaning.callback(os.close, confinement.status)
        cleaning.callback(os.close, confinement.gate)
        os.write(confinement.gate, OPEN)
        line = confinement.argv
        del line[line.index("--seccomp") : line.index("--seccomp") + 2]
        done = subprocess.run(line, pass_fds=confinement.descriptors, capture_output=True)
    assert b"unshare failed: No space left on device" in done.stderr


async def test_devices_and_the_root_are_read_only_and_private_folders_have_a_size() -> None:
    command = (
        "(: >/dev/made) && echo escaped; (: >/made) && echo escaped;"
        " for d in /tmp /dev/shm /run /var/tmp;"
        " do head -c 40000000 /dev/zero >$d/big && echo unbounded; done; echo x >/dev/null"
    )
    with TestHost(HOLDFAST_CAGES=json.dumps({"tmp_mb": 16})) as host:
        async with await host.client() as client:
            over, output = await run_caged(host, client, command)
    assert over.code == 0
    assert "escaped" not in output
    assert "unbounded" not in output
    assert output.count("No space left") == 4
