"""Files of a checkpoint come back on a machine that did not save them, whoever dies meanwhile."""

from __future__ import annotations

import asyncio
import fcntl
import signal
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path

import pytest

from activities.trees.shadow_git import ShadowGit
from holdfast.domain.commands import Move
from holdfast.domain.ids import new_id
from holdfast.storage.database.opening import OpenStore
from holdfast.storage.database.tables_history import Checkpoint
from holdfast.storage.moves import checkpoints, tree_bundles
from tests.support.local_worker import script, until
from tests.support.servers.machines import Fleet, Machine


@pytest.fixture
async def fleet(postgres_store: OpenStore, temporal: str, tmp_path: Path) -> AsyncIterator[Fleet]:
    """Two machines on one Postgres and one Temporal; each keeps its snapshots in its own home."""
    async with Fleet(postgres_store, tmp_path, temporal) as made:
        yield made


async def saved(fleet: Fleet, session_id: str) -> Checkpoint:
    """A checkpoint whose files are in the blob store, of a session that is idle afterwards."""
    store = fleet.driver.store
    run = (await fleet.driver.send(session_id, script({"hang_s": 600}))).run_id or ""
    made = (await fleet.driver.pause(session_id)).checkpoint_id or ""

    def shipped() -> Checkpoint | None:
        point = store.read(lambda db: checkpoints.get(db, session_id, made))
        if point.tree is None:
            return None
        found = store.read(partial(tree_bundles.chain, session_id=session_id, tree=point.tree))
        return point if found else None

    point = await until(shipped, "the files to be in the blob store")
    await fleet.driver.resume(session_id, made)
    await fleet.driver.cancel(session_id, run)
    await fleet.driver.over(run)
    await fleet.idle(session_id)
    return point


async def moved(fleet: Fleet, session_id: str) -> Machine:
    """The other machine, which has the session now; the one that had it is gone."""
    old = fleet.of(session_id)
    new = fleet.other(old)
    user = fleet.driver.operator_id
    command = Move(command_id=new_id(), user_id=user, host_id=new.id)
    await fleet.driver.command(session_id, "move", command)
    await old.end_worker(signal.SIGKILL)
    old.host.kill()
    return new


async def test_files_come_back_after_a_move_although_the_worker_is_killed_in_the_middle(
    fleet: Fleet,
) -> None:
    session = await fleet.placed()
    kept = fleet.file(session, "kept")
    kept.write_text("one")
    first = await saved(fleet, session)
    kept.write_text("two")
    second = await saved(fleet, session)
    chain = fleet.driver.store.read(lambda db: tree_bundles.chain(db, session, second.tree or ""))
    assert [one.tree for one in chain] == [first.tree, second.tree]
    kept.write_text("three")
    machine = await moved(fleet, session)
    # Its git folder is held, so the step is in the middle of fetching when its worker dies.
    folder = machine.home / "snapshots" / ShadowGit.name_of(kept.parent)
    folder.mkdir(parents=True, mode=0o700)
    with (folder / "holdfast.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        going = asyncio.create_task(fleet.driver.roll_back(session, second.id, restore_files=True))
        inode = f":{(folder / 'holdfast.lock').stat().st_ino} "
        await until(lambda: _is_waited_for(inode), "the worker to wait for the git folder")
        await machine.end_worker(signal.SIGKILL)
    await machine.start_worker()
    await going
    assert kept.read_text() == "two"
    await fleet.driver.roll_back(session, first.id, restore_files=True)
    assert kept.read_text() == "one"


def _is_waited_for(inode: str) -> bool:
    locks = Path("/proc/locks").read_text().splitlines()
    return any("-> FLOCK" in line and inode in line for line in locks)
