"""Which cage a machine has: found by trials that attack, and told in words."""

import os
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest

from holdfast.domain.cages.shown import CageKind, MachineCage, described, in_words
from holdfast.terminal.cages import finding
from holdfast.terminal.cages.bubblewrap import Bubblewrap
from holdfast.terminal.cages.confinement import Confinement, Wanted
from holdfast.terminal.cages.programs import binds_descriptors
from holdfast.terminal.cages.trial import attack
from holdfast.terminal.errors import CageUnavailable
from tests.support.servers.caged_programs import WITHOUT_NAMESPACES, before, run_caged
from tests.support.servers.terminal_hosts import TestHost

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount")
SHOWN = "command lines of other processes on this machine can be read"
# Part of /proc is covered, so the kernel lets nobody mount it anew: a container has that.
COVERED_PROC = [
    *("unshare", "--mount", "sh", "-c"),
    'mount --bind /dev/null /proc/uptime && exec "$@"',
    "sh",
]


@needs_root
async def test_where_proc_is_covered_the_cage_uses_it_as_it_is_and_says_so() -> None:
    host = TestHost(SECRET_NAME="kept out")
    host.prefix = COVERED_PROC
    with host:
        (host.folder / "beside").write_text("the secret")
        async with await host.client() as client:
            told = (await client.host())["machine_cage"]
            assert (told["kind"], told["reduced"]) == ("bubblewrap", [SHOWN])
            assert "Can't mount proc" in told["why"]
            command = (
                f"cat ../beside /proc/{host.pid}/environ; kill -9 {host.pid} && echo killed;"
                " (: >>/proc/sys/kernel/core_pattern) && echo opened; echo x > kept && echo end"
            )
            over, output = await run_caged(host, client, command)
            assert over.code == 0
            assert output.endswith("end\n")
            for word in ("the secret", "kept out", "killed", "opened"):
                assert word not in output


async def test_without_namespaces_the_kind_is_landlock_and_what_it_lacks_is_told() -> None:
    host = TestHost()
    host.prefix = before(WITHOUT_NAMESPACES)
    with host:
        async with await host.client() as client:
            told = (await client.host())["machine_cage"]
    machine = MachineCage(**{**told, "reduced": tuple(told["reduced"])})
    words = in_words(described({"memory_mb": 64}, machine))
    assert words.startswith(f"cage kind: landlock (reduced): {SHOWN}; ")
    assert "; because bubblewrap does not work here: " in words


class Leaking:
    """A cage with one hole, which a trial must find."""

    kind: CageKind = "bubblewrap"
    program: str | None = None
    reduced: tuple[str, ...] = ()

    def __init__(self, hole: tuple[str, ...]) -> None:
        self._hole = hole

    def confine(self, wanted: Wanted, cleaning: ExitStack) -> Confinement:
        sound = Bubblewrap(finding.probe().program or "").confine(wanted, cleaning)
        at = sound.argv.index("--chdir")
        return replace(sound, argv=[*sound.argv[:at], *self._hole, *sound.argv[at:]])


@needs_root
@pytest.mark.parametrize(
    ("hole", "why"),
    [
        (("--bind", "/tmp", "/tmp"), "it read a secret outside; it wrote a file outside"),
        (("--share-net",), "it connected to this machine"),
        (("--ro-bind", "/proc", "/proc"), "it saw the processes of others"),
        (("--bind", "/proc", "/proc"), "it opened a setting of the kernel for writing"),
    ],
)
def test_a_cage_with_a_hole_is_found_out(hole: tuple[str, ...], why: str) -> None:
    with pytest.raises(CageUnavailable, match=f"does not hold here: .*{why}"):
        attack(Leaking(hole))


def test_a_cage_that_cannot_start_is_told_with_its_words() -> None:
    with pytest.raises(CageUnavailable, match=r"does not work here: .*no-such-program"):
        attack(Bubblewrap("/no-such-program"))


def test_a_bubblewrap_that_cannot_bind_descriptors_is_passed_over(tmp_path: Path) -> None:
    old = tmp_path / "bwrap"
    old.write_text("#!/bin/sh\necho --bind --ro-bind\n")
    old.chmod(0o755)
    assert not binds_descriptors(str(old))
    found = finding.probe().program
    assert found is not None
    assert binds_descriptors(found)
