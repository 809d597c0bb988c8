"""A caged program attacks folders: it swaps, renames and links what cages are given and refused."""

import os
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from holdfast.terminal.cages.finding import probe
from holdfast.terminal.client import TerminalClient
from holdfast.terminal.errors import CageSpawnFailed, SpawnFailed, TerminalError
from tests.support.attackers.rounds import PERSISTENCE
from tests.support.attackers.swapper import swapping
from tests.support.servers.caged_programs import run_caged
from tests.support.servers.terminal_hosts import TestHost

CAGES = 200 * PERSISTENCE
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount")
CAGES_OR_NONE: tuple[dict[str, Any] | None, ...] = ({}, None)


@pytest.fixture
def host() -> Iterator[TestHost]:
    with TestHost() as running:
        (running.folder / "outside").mkdir()
        (running.folder / "outside/file").write_text("the secret")
        yield running


@pytest.fixture
async def client(host: TestHost) -> AsyncIterator[TerminalClient]:
    async with await host.client() as connected:
        yield connected


@pytest.mark.parametrize("caged", [True, False])
@pytest.mark.parametrize("below", [True, False])
async def test_a_folder_that_is_swapped_with_a_link_while_cages_start_gives_no_secret(
    host: TestHost, client: TerminalClient, below: bool, caged: bool
) -> None:
    parent = host.work if below else host.folder / "parent"
    (folder := parent / "folder").mkdir(parents=True)
    (folder / "file").write_text("the right one")
    (link := parent / "link").symlink_to(host.folder / "outside")
    place = {"cwd": str(parent), "below": "folder"} if below else {"cwd": str(folder)}
    said, refused = [], 0
    with swapping(folder, link):
        for _ in range(CAGES if caged else CAGES // 4):
            try:
                _, output = await run_caged(
                    host, client, "cat file", **place, cage={} if caged else None
                )
            except SpawnFailed:
                refused += 1
            else:
                said.append(output)
    assert not [output for output in said if "secret" in output]
    assert said.count("the right one") > 0
    assert refused > 0, "the swapper was never met"


@pytest.mark.parametrize("below", ["../outside", "up", "absolute"])
async def test_a_name_that_leads_out_of_the_root_is_refused(
    host: TestHost, client: TerminalClient, below: str
) -> None:
    (host.work / "up").symlink_to("../outside")
    (host.work / "absolute").symlink_to(host.folder / "outside")
    for cage in CAGES_OR_NONE:
        with pytest.raises(SpawnFailed, match="leads out of"):
            await run_caged(host, client, "cat file", below=below, cage=cage)


@pytest.mark.parametrize(
    "place", ["/", "/proc", "/proc/self", "/sys/kernel", "/dev/shm", "{state}"]
)
async def test_no_cage_works_in_a_place_of_the_kernel_or_of_the_product(
    host: TestHost, client: TerminalClient, place: str
) -> None:
    with pytest.raises((CageSpawnFailed, SpawnFailed)):
        await run_caged(host, client, "true", cwd=place.format(state=host.state))


@pytest.mark.parametrize("cage", CAGES_OR_NONE)
@pytest.mark.parametrize("place", ["/proc", "/proc/sys/kernel", "/sys/kernel", "/dev/shm"])
async def test_nobody_works_in_a_place_of_the_kernel_even_without_a_cage(
    host: TestHost, client: TerminalClient, place: str, cage: dict[str, Any] | None
) -> None:
    with pytest.raises(SpawnFailed, match="is a place of the kernel"):
        await run_caged(host, client, "true", cwd=place, cage=cage)
    with pytest.raises(TerminalError):
        await run_caged(host, client, "true", cage={"fs": {"read_write": [place]}})


WITH_A_SECOND_PROC = 'mkdir -p "$0/inner/k" && mount -t proc proc "$0/inner/k" && exec "$@"'


@needs_root
async def test_a_proc_that_is_mounted_elsewhere_is_given_to_no_cage() -> None:
    host = TestHost()
    # In a namespace of its own: only this host sees the mount.
    alone = ["unshare", "--mount", "--propagation", "private", "sh", "-c", WITH_A_SECOND_PROC]
    host.prefix = [*alone, str(host.work)]
    attack = "test -w inner/k/sys/kernel/core_pattern && echo BROKEN"
    with host:
        (host.work / "inner/plain").mkdir()
        async with await host.client() as client:
            for cwd in (host.work, host.work / "inner/k/sys"):
                with pytest.raises(TerminalError, match=r"inner/k.* is a place of the kernel"):
                    await run_caged(host, client, attack, cwd=str(cwd))
            inner = {"fs": {"read_write": [str(host.work / "inner")]}}
            plain = str(host.work / "inner/plain")
            with pytest.raises(TerminalError, match=r"inner/k .* is a place of the kernel"):
                await run_caged(host, client, attack, cwd=plain, cage=inner)
            over, _ = await run_caged(host, client, "true", cwd=plain)
            assert over.code == 0


async def test_sessions_share_a_folder_and_a_name_below_it_is_entered(
    host: TestHost, client: TerminalClient
) -> None:
    (host.work / "sub").mkdir()
    await run_caged(host, client, "echo one > sub/a", session_id="first")
    _, output = await run_caged(host, client, "cat a; pwd", session_id="other", below="sub")
    assert output == f"one\n{host.work}/sub\n"


async def test_the_settings_of_the_project_cannot_be_changed(
    host: TestHost, client: TerminalClient
) -> None:
    inner = host.work / "deep" / "project"
    for folder in (host.work, inner):
        (folder / ".holdfast").mkdir(parents=True)
        (folder / ".holdfast/project.yaml").write_text("version: 1")
    command = (
        "for p in . deep/project; do cat $p/.holdfast/project.yaml; echo x > $p/.holdfast/new;"
        " echo x > $p/.holdfast/project.yaml; rm -rf $p/.holdfast/*; mv $p/.holdfast $p/other;"
        " done; mv deep elsewhere; mv deep/project deep/other; true"
    )
    _, output = await run_caged(host, client, command, project=str(inner))
    assert output.count("version: 1") == 2
    for folder in (host.work, inner):
        assert [path.name for path in (folder / ".holdfast").iterdir()] == ["project.yaml"]
        assert (folder / ".holdfast/project.yaml").read_text() == "version: 1"
    command = "mkdir -p deep/project/.holdfast && touch deep/project/.holdfast/new"
    over, _ = await run_caged(host, client, command)
    assert over.code == 0, "a folder of settings of no project of ours"


async def test_settings_behind_a_link_are_refused_in_words(
    host: TestHost, client: TerminalClient
) -> None:
    await run_caged(host, client, "mkdir other; ln -s other .holdfast")
    with pytest.raises(CageSpawnFailed, match="is a link"):
        await run_caged(host, client, "true")


async def test_a_hidden_folder_does_not_come_to_light_when_its_parent_is_renamed(
    host: TestHost, client: TerminalClient
) -> None:
    (host.work / "a/b/secrets").mkdir(parents=True)
    (host.work / "a/b/secrets/key").write_text("the secret")
    cage = {"fs": {"hidden": ["a/b/secrets"]}}
    command = "mv a a2; mv a/b a/b2; mv a/b/secrets x; find . -type f"
    for _ in range(2):
        over, output = await run_caged(host, client, command + " | xargs cat", cage=cage)
        assert "the secret" not in output
        assert output.count("mv: ") == 3
    # A cage without the rule may rename; the next one with it sees that.
    await run_caged(host, client, "mv a a2")
    with pytest.raises(CageSpawnFailed, match=r"was moved to .*/a2/b/secrets"):
        await run_caged(host, client, "cat a2/b/secrets/key", cage=cage)
    await run_caged(host, client, "mv a2 a")
    over, output = await run_caged(host, client, "ls a/b/secrets; echo end", cage=cage)
    assert (over.code, output) == (0, "end\n")


@pytest.mark.parametrize("given", ["read_only", "read_write"])
async def test_what_is_hidden_is_missed_when_it_was_moved_from_outside(
    host: TestHost, client: TerminalClient, given: str
) -> None:
    (outside := host.folder / "outside").joinpath("inner").mkdir()
    cage = {"fs": {given: [str(outside)], "hidden": [str(outside / "file")]}}
    show = f"cd {outside}; find . -type f | xargs cat 2>/dev/null; echo end"
    assert (await run_caged(host, client, show, cage=cage))[1] == "end\n"
    for name in ("beside", "inner/file"):
        (outside / "file").rename(outside / name)
        with pytest.raises(CageSpawnFailed, match=f"was moved to .*/outside/{name}; move it back"):
            await run_caged(host, client, show, cage=cage)
        (outside / name).rename(outside / "file")
    assert (await run_caged(host, client, show, cage=cage))[1] == "end\n"


async def test_a_hidden_file_that_was_replaced_is_hidden_again(
    host: TestHost, client: TerminalClient
) -> None:
    hidden = host.work / ".env"
    hidden.write_text("the secret")
    cage = {"fs": {"hidden": [".env"]}}
    assert "the secret" not in (await run_caged(host, client, "cat .env", cage=cage))[1]
    hidden.with_suffix(".new").write_text("another secret")
    hidden.with_suffix(".new").rename(hidden)
    over, output = await run_caged(host, client, "cat .env", cage=cage)
    assert (over.failure, over.code) == (None, 1)
    assert "another secret" not in output


async def test_what_is_hidden_inside_of_what_is_hidden_stays_so(
    host: TestHost, client: TerminalClient
) -> None:
    (host.work / "a/b/c").mkdir(parents=True)
    (host.work / "a/b/beside").write_text("the secret")
    cage = {"fs": {"hidden": ["a", "a/b/c"]}}
    _, output = await run_caged(host, client, "find a -type f", cage=cage)
    assert "beside" not in output


@pytest.mark.parametrize("kind", ["read_write", "read_only", "hidden"])
async def test_a_rule_cannot_be_turned_by_a_link_that_a_program_put_there(
    host: TestHost, client: TerminalClient, kind: str
) -> None:
    (host.work / "cache").mkdir()
    cage = {"fs": {kind: ["cache"]}}
    await run_caged(host, client, "true", cage=cage)
    await run_caged(host, client, f"mv cache old; ln -s {host.folder}/outside cache")
    with pytest.raises(TerminalError):
        await run_caged(host, client, "cat cache/file", cage=cage)


async def test_a_file_can_be_given_and_hidden(host: TestHost, client: TerminalClient) -> None:
    given = Path(host.folder / "outside/file")
    cage = {"fs": {"read_only": [str(given)]}}
    over, output = await run_caged(host, client, f"cat {given}; echo x > {given}", cage=cage)
    assert "the secret" in output
    assert over.code == 1
    assert given.read_text() == "the secret"


# Once armed, says what bubblewrap says when its folder was exchanged; else it is the real one.
UNLUCKY = """#!/bin/sh
if test -e {armed} && test "$1" != --help; then
  read -r left < {armed}
  test "$left" = 1 && rm {armed} || echo 1 > {armed}
  echo 'bwrap: Race condition binding dirfd' >&2
  exit 1
fi
exec {real} "$@"
"""


@pytest.mark.parametrize("terminal", [True, False])
async def test_a_cage_whose_folder_was_exchanged_is_started_once_more(
    tmp_path: Path, terminal: bool
) -> None:
    armed, program = tmp_path / "armed", tmp_path / "bwrap"
    program.write_text(UNLUCKY.format(armed=armed, real=probe().program))
    program.chmod(0o755)
    with TestHost(PATH=f"{tmp_path}:{os.environ['PATH']}") as host:
        async with await host.client() as client:
            armed.write_text("1\n")
            over, output = await run_caged(host, client, "echo right; exit 3", terminal=terminal)
            assert (over.code, over.failure) == (3, None)
            assert output.splitlines()[-1] == "right"
            armed.write_text("2\n")
            over, output = await run_caged(host, client, "echo wrong", terminal=terminal)
            assert over.failure == "cage_spawn_failed"
            assert "wrong" not in output
