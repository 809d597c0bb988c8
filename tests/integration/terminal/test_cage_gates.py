"""A caged program begins when its call is on disk: not before, and never after its host died."""

import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from holdfast.terminal import tree
from holdfast.terminal.cages.hiding import Hiding
from holdfast.terminal.cages.limits import CageLimits
from holdfast.terminal.cages.policy import CagePolicy
from holdfast.terminal.exits import Folder, Folders
from holdfast.terminal.launch import Launched, launch
from holdfast.terminal.records import Reason, SpawnRequest
from holdfast.terminal.registry import Registry
from holdfast.terminal.screens.screen import Screens

DEADLINE_S = 120.0


@pytest.fixture
def hiding() -> Iterator[Hiding]:
    with closing(Hiding()) as opened:
        yield opened


def requested(work: Path, name: str) -> SpawnRequest:
    """A program in a cage that leaves a file of that name behind."""
    command = f"echo ran > {name}"
    return SpawnRequest(key=name, session_id="session", cwd=str(work), command=command, cage={})


def caged(
    work: Path, hiding: Hiding, name: str, ready: Callable[[], None], mark: str = "mark"
) -> Launched:
    """That program, started as a host starts it."""
    policy = CageLimits().applied(CagePolicy())
    request = requested(work, name)
    return launch(request, policy, hidden=(), hiding=hiding, mark=mark, ready=ready)


def run_another(work: Path, hiding: Hiding) -> None:
    """A later cage from its start to its end: by then an earlier one would have run, too."""
    later = caged(work, hiding, "later", lambda: None)
    assert later.reap() == 0
    later.close()
    assert (work / "later").exists()
    (work / "later").unlink()


def wait_for_the_end(pids: list[int]) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while any(map(tree.is_alive, pids)):
        assert time.monotonic() < deadline, f"some of {pids} are still there"
        time.sleep(0.001)


def test_a_caged_program_begins_after_its_call_is_on_disk(tmp_path: Path, hiding: Hiding) -> None:
    def ready() -> None:
        run_another(tmp_path, hiding)
        assert not (tmp_path / "program").exists()

    launched = caged(tmp_path, hiding, "program", ready)
    assert launched.reap() == 0
    launched.close()
    assert (tmp_path / "program").exists()


def test_a_caged_program_whose_call_cannot_be_written_never_runs(
    tmp_path: Path, hiding: Hiding
) -> None:
    others = set(tree.children_of(os.getpid()))
    waiting: list[int] = []

    def ready() -> None:
        waiting.extend(set(tree.children_of(os.getpid())) - others)
        run_another(tmp_path, hiding)
        raise OSError("the disk is full")

    with pytest.raises(OSError, match="the disk is full"):
        caged(tmp_path, hiding, "program", ready)
    assert waiting
    wait_for_the_end(waiting)
    assert not (tmp_path / "program").exists()


async def test_a_host_that_dies_before_the_call_is_on_disk_leaves_nothing_that_runs(
    tmp_path: Path, hiding: Hiding
) -> None:
    (work := tmp_path / "work").mkdir()
    folder = Folders(tmp_path / "state/processes").of("program")
    outside, inside = _left_behind(work, hiding, folder)
    wait_for_the_end([outside])
    run_another(work, hiding)
    assert not (work / "program").exists()
    # What is left waits at its gate until the next host of this state ends it.
    registry = Registry(tmp_path / "state", Screens(), lambda *_: None)
    wait_for_the_end([inside])
    over = registry.get("program").exit
    assert over is not None
    assert over.reason is Reason.LOST
    assert not (work / "program").exists()


def _left_behind(work: Path, hiding: Hiding, folder: Folder) -> tuple[int, int]:
    """The two processes of a cage whose host died while it waited for the disk."""
    reads, writes = os.pipe()
    host = os.fork()
    if host == 0:
        _launch_and_die(work, hiding, folder, writes)
    os.close(writes)
    _, status = os.waitpid(host, 0)
    with os.fdopen(reads) as said:
        outside, inside = map(int, said.read().split())
    assert os.WIFSIGNALED(status), "the host did not come to its death"
    return outside, inside


def _launch_and_die(work: Path, hiding: Hiding, folder: Folder, answer: int) -> None:
    """In the child, which stands for the host; never returns."""

    def die() -> None:
        [outside] = tree.children_of(os.getpid())
        run_another(work, hiding)
        [inside] = tree.children_of(outside)
        os.write(answer, f"{outside} {inside}".encode())
        os.kill(os.getpid(), signal.SIGKILL)

    try:
        folder.write_request(requested(work, "program"), 1)
        caged(work, hiding, "program", die, mark=folder.path.name)
    finally:
        os._exit(1)
