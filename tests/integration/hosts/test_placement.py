"""Where a session works: placed once, told of away machines, drained, moved."""

from __future__ import annotations

import os
import signal
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path

import pytest

from holdfast.domain.commands import Move
from holdfast.domain.errors import Conflict
from holdfast.domain.ids import new_id
from holdfast.storage.database.opening import OpenStore
from holdfast.storage.hosts import hosts
from tests.support.local_worker import script, until
from tests.support.servers.machines import UNCAGED, Fleet, Machine
from tests.support.servers.terminal_hosts import state_of

WAITING = "echo $$ > pid; echo begun >> lines; while [ ! -e go ]; do sleep 0.05; done"
LOOK = script({"call": "list_files"}, {"say": "looked"})
ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="hides a folder in a mount namespace")


@pytest.fixture
async def fleet(postgres_store: OpenStore, temporal: str, tmp_path: Path) -> AsyncIterator[Fleet]:
    """Two machines on one Postgres and one Temporal."""
    async with Fleet(postgres_store, tmp_path, temporal) as made:
        yield made


async def move(fleet: Fleet, session_id: str, target: Machine) -> None:
    """Ask for a move, as the API does."""
    user = fleet.driver.operator_id
    command = Move(command_id=new_id(), user_id=user, host_id=target.id)
    await fleet.driver.command(session_id, "move", command)


async def test_sessions_go_to_the_machine_that_has_the_fewest_and_does_not_drain(
    fleet: Fleet,
) -> None:
    first, second = await fleet.placed(), await fleet.placed()
    assert {fleet.of(first), fleet.of(second)} == set(fleet.machines)
    drained = fleet.second.id
    fleet.driver.store.write(partial(hosts.drain, host_id=drained, draining=True))
    assert [fleet.of(await fleet.placed()) for _ in range(2)] == [fleet.first] * 2
    kept = first if fleet.of(first) is fleet.second else second
    assert (await fleet.driver.run(kept, LOOK)).state == "done"
    assert fleet.of(kept) is fleet.second


async def test_a_folder_that_no_machine_has_is_an_error_in_words_at_once(fleet: Fleet) -> None:
    session = fleet.session()
    folder = Path(fleet.driver.row(session).working_directory)
    folder.rename(folder.with_name("elsewhere"))
    run = await fleet.driver.run(session, LOOK)
    assert run.state == "failed"
    assert run.error is not None
    assert run.error["code"] == "no_host"
    assert str(folder) in run.error["message"]
    assert "first" in run.error["message"]
    assert run.duration_ms is not None
    assert run.duration_ms < 30_000
    assert fleet.driver.row(session).host_id is None


async def test_pause_and_resume_and_cancel_reach_the_process_on_its_machine(fleet: Fleet) -> None:
    # The other machine's worker would find nothing to stop.
    sessions = [await fleet.placed(), await fleet.placed()]
    for session in sessions:
        run = await fleet.running(session, WAITING)
        pid = int(fleet.file(session, "pid").read_text())
        paused = await fleet.driver.pause(session)
        assert state_of(pid) == "T"
        await fleet.driver.resume(session, paused.checkpoint_id)
        await until(lambda pid=pid: state_of(pid) not in ("T", ""), "the process to go on")  # type: ignore[misc]
        await fleet.driver.cancel(session)
        assert (await fleet.driver.over(run)).state == "cancelled"
        await until(lambda pid=pid: state_of(pid) in ("", "Z"), "the process to be gone")  # type: ignore[misc]


async def test_a_machine_whose_worker_is_told_to_stop_gets_no_new_sessions(fleet: Fleet) -> None:
    session = fleet.session()
    run = await fleet.running(session, WAITING)
    machine = fleet.of(session)
    await machine.end_worker(signal.SIGTERM)
    row = machine.row()
    assert row is not None
    assert row.leaving
    other = fleet.other(machine)
    assert fleet.of(await fleet.placed()) is other
    fleet.file(session, "go").touch()
    await machine.start_worker()
    assert (await fleet.driver.over(run)).state == "done"
    assert fleet.lines(session) == ["begun"]


async def test_an_idle_session_moves_and_goes_on_where_it_was_moved_to(fleet: Fleet) -> None:
    session = await fleet.placed()
    old = fleet.of(session)
    new = fleet.other(old)
    await move(fleet, session, new)
    await old.end_worker(signal.SIGKILL)
    assert (await fleet.driver.run(session, LOOK)).state == "done"
    assert fleet.of(session) is new
    moved = await fleet.driver.event(session, "session.moved")
    assert (moved.data["from_host"], moved.data["to_host"]) == (old.id, new.id)


async def test_a_session_does_not_move_while_it_runs_or_its_command_is_open(fleet: Fleet) -> None:
    session = fleet.session()
    run = await fleet.running(session, WAITING)
    other = fleet.other(fleet.of(session))
    with pytest.raises(Conflict, match="cannot move while running"):
        await move(fleet, session, other)
    paused = await fleet.driver.pause(session)
    with pytest.raises(Conflict, match="1 commands and 0 terminals of this session are on"):
        await move(fleet, session, other)
    fleet.file(session, "go").touch()
    await fleet.driver.resume(session, paused.checkpoint_id)
    assert (await fleet.driver.over(run)).state == "done"


@ROOT
async def test_a_session_is_placed_and_moved_only_where_its_folder_is(fleet: Fleet) -> None:
    project = fleet.driver.project(UNCAGED)
    session = fleet.driver.session(project)
    folder = Path(fleet.driver.row(session).working_directory)
    await fleet.first.end_worker(signal.SIGTERM)
    await fleet.first.start_worker(hidden=folder)
    # The first would be chosen: it has no session, like the second, and its id may be smaller.
    for _ in range(2):
        await fleet.driver.run(session, LOOK)
        assert fleet.of(session) is fleet.second
        session = fleet.driver.session(project)
    await fleet.driver.run(session, LOOK)
    await fleet.idle(session)
    with pytest.raises(Conflict, match=f"the host first has no folder {folder}"):
        await move(fleet, session, fleet.first)
    assert fleet.of(session) is fleet.second
