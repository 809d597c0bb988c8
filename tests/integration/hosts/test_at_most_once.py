"""A command runs at most once, whichever part of its machine dies in the middle of it."""

from __future__ import annotations

import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from holdfast.storage.database.opening import OpenStore
from holdfast.storage.hosts import hosts
from tests.support.local_worker import script, until
from tests.support.servers.machines import LOST_AFTER_S, Fleet

# Appends a line at its start, then waits for a word from the test.
COMMAND = "echo begun >> lines; while [ ! -e go ]; do sleep 0.05; done; echo ended >> lines"
ONCE = ["begun", "ended"]


@pytest.fixture
async def fleet(
    request: pytest.FixtureRequest, postgres_store: OpenStore, temporal: str, tmp_path: Path
) -> AsyncIterator[Fleet]:
    """Two machines on one Postgres and one Temporal; patient unless the test says otherwise."""
    lost_after_s = getattr(request, "param", LOST_AFTER_S)
    async with Fleet(postgres_store, tmp_path, temporal, lost_after_s=lost_after_s) as made:
        yield made


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
async def test_a_command_goes_on_once_when_its_worker_ends_and_the_next_one_attaches(
    fleet: Fleet, number: signal.Signals
) -> None:
    session = fleet.session()
    run = await fleet.running(session, COMMAND)
    machine = fleet.of(session)
    await machine.end_worker(number)
    fleet.file(session, "go").touch()
    await until(lambda: fleet.lines(session) == ONCE, "the command to end without a worker")
    await machine.start_worker()
    assert (await fleet.driver.over(run)).state == "done"
    assert fleet.lines(session) == ONCE
    assert fleet.result(run)["exit_code"] == 0
    assert fleet.execution(run).state == "done"


async def test_a_command_whose_terminal_host_was_killed_is_lost_and_the_run_goes_on(
    fleet: Fleet,
) -> None:
    session = fleet.session()
    run = await fleet.running(session, COMMAND)
    machine = fleet.of(session)
    epoch = fleet.execution(run).epoch
    machine.host.kill()
    machine.host.start()
    fleet.file(session, "go").touch()
    assert (await fleet.driver.over(run)).state == "done"
    assert fleet.lines(session) in (["begun"], ONCE)
    result = fleet.result(run)
    assert result["reason"] == "lost"
    assert "unknown whether it finished" in result["message"]
    assert fleet.driver.texts(session)[-1] == "went on"
    assert fleet.execution(run).epoch == epoch
    row = await until(machine.row, "the host's row")
    await until(lambda: (machine.row() or row).epoch > epoch, "the new epoch")


@pytest.mark.parametrize("fleet", [12], indirect=True)
async def test_a_command_of_a_machine_that_is_gone_is_lost_and_not_started_elsewhere(
    fleet: Fleet,
) -> None:
    session = fleet.session()
    run = await fleet.running(session, COMMAND)
    machine = fleet.of(session)
    await machine.end_worker(signal.SIGKILL)
    machine.host.kill()
    assert (await fleet.driver.over(run)).state == "done"
    assert fleet.lines(session) == ["begun"]
    assert fleet.result(run)["reason"] == "lost"
    assert "unknown whether it finished" in fleet.result(run)["error"]
    assert fleet.execution(run).state == "lost"
    told = [one.data for one in fleet.driver.events(session) if one.kind == "host.away"]
    assert told == [{"session_id": session, "host_id": machine.id, "name": machine.name}]


async def test_steps_wait_for_a_machine_that_is_away_and_run_there_when_it_is_back(
    fleet: Fleet,
) -> None:
    session = await fleet.placed()
    machine = fleet.of(session)
    await machine.end_worker(signal.SIGKILL)
    call = {"call": "shell", "arguments": {"command": COMMAND}}
    run = (await fleet.driver.send(session, script(call, {"say": "went on"}))).run_id or ""
    row = await until(machine.row, "the host's row")
    await until(lambda: hosts.state_of(machine.row() or row) == "away", "the machine to be away")
    await fleet.driver.event(session, "host.away")
    assert fleet.lines(session) == []
    fleet.file(session, "go").touch()
    await machine.start_worker()
    assert (await fleet.driver.over(run)).state == "done"
    assert fleet.lines(session) == ONCE
    await fleet.driver.event(session, "host.back")
    assert fleet.of(session) is machine
