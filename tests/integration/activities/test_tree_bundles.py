"""Snapshots as bundles: from the git folder of one machine to that of another."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from activities.trees.bundles import TooLarge
from activities.trees.shadow_git import GitTrouble
from activities.trees.snapshots import Trees

MIB = 1 << 20
# Dies at the command of git that has this number, counted from the beginning of the unpacking.
DYING = """
import os, signal, sys
from pathlib import Path
from activities.trees.shadow_git import ShadowGit
from activities.trees.snapshots import Trees
root, work, snapshot, bundle, last = sys.argv[1:]
left = [int(last)]
run = ShadowGit.run
def dying(self, *arguments, **options):
    if left[0] == 0:
        os.kill(os.getpid(), signal.SIGKILL)
    left[0] -= 1
    return run(self, *arguments, **options)
ShadowGit.run = dying
Trees(Path(root)).unbundle(work, snapshot, Path(bundle).read_bytes())
"""


@pytest.fixture
def work(tmp_path: Path) -> Path:
    """A folder that both machines see under one path, with something that does not compress."""
    folder = tmp_path / "work"
    folder.mkdir()
    (folder / "large").write_bytes(random.Random(1).randbytes(MIB))
    (folder / "small").write_text("first")
    return folder


@pytest.fixture
def here(tmp_path: Path) -> Trees:
    return Trees(tmp_path / "here")


@pytest.fixture
def there(tmp_path: Path) -> Trees:
    return Trees(tmp_path / "there")


def taken(trees: Trees, work: Path, small: str) -> str:
    """A snapshot with this text in the small file."""
    (work / "small").write_text(small)
    found = trees.take(work).tree
    assert found is not None
    return found


def test_a_snapshot_is_restored_by_a_machine_that_never_saw_the_files(
    work: Path, here: Trees, there: Trees
) -> None:
    first = taken(here, work, "first")
    second = taken(here, work, "second")
    whole = here.bundle(str(work), first, basis=None, bytes_max=2 * MIB)
    more = here.bundle(str(work), second, basis=first, bytes_max=2 * MIB)
    assert (whole.basis, more.basis) == (None, first)
    assert len(more.data) < 4096 < MIB < len(whole.data)
    there.unbundle(str(work), first, whole.data)
    there.unbundle(str(work), second, more.data)
    there.unbundle(str(work), second, more.data)
    (work / "large").unlink()
    (work / "small").write_text("third")
    assert sorted(there.restore(work, second).restored) == ["large", "small"]
    assert (work / "small").read_text() == "second"
    assert len((work / "large").read_bytes()) == MIB
    assert there.restore(work, first).restored == ["small"]


def test_a_bundle_without_its_basis_is_refused_and_the_snapshot_is_not_there(
    work: Path, here: Trees, there: Trees
) -> None:
    first, second = taken(here, work, "first"), taken(here, work, "second")
    more = here.bundle(str(work), second, basis=first, bytes_max=MIB)
    with pytest.raises(GitTrouble, match="bundle"):
        there.unbundle(str(work), second, more.data)
    assert not there.has(str(work), second)


def test_a_basis_that_is_not_here_is_done_without(work: Path, here: Trees) -> None:
    first = taken(here, work, "first")
    bundle = here.bundle(str(work), first, basis="0" * 40, bytes_max=2 * MIB)
    assert bundle.basis is None


def test_a_bundle_larger_than_the_limit_is_not_made(work: Path, here: Trees) -> None:
    first = taken(here, work, "first")
    with pytest.raises(TooLarge):
        here.bundle(str(work), first, basis=None, bytes_max=MIB // 2)


@pytest.mark.parametrize("name", ["", "--all", "refs/heads/x", "../x"])
def test_what_is_no_name_of_a_snapshot_is_refused(work: Path, here: Trees, name: str) -> None:
    taken(here, work, "first")
    with pytest.raises(GitTrouble, match="no name of a snapshot"):
        here.bundle(str(work), name, basis=None, bytes_max=MIB)


def test_unpacking_that_is_killed_at_any_command_is_repeated_to_a_whole_snapshot(
    work: Path, here: Trees, tmp_path: Path
) -> None:
    first = taken(here, work, "first")
    file = tmp_path / "bundle"
    file.write_bytes(here.bundle(str(work), first, basis=None, bytes_max=2 * MIB).data)
    codes = []
    for last in range(5):
        root = tmp_path / f"killed-{last}"
        words = [str(one) for one in (root, work, first, file, last)]
        command = [sys.executable, "-c", DYING, *words]
        codes.append(subprocess.run(command, check=False).returncode)
        trees = Trees(root)
        trees.unbundle(str(work), first, file.read_bytes())
        (work / "small").write_text("changed")
        assert trees.restore(work, first).restored == ["small"]
    # Asked for, unpacked, looked at, named: four commands, and the fifth would be one too many.
    assert codes == [-signal.SIGKILL] * 4 + [0]
