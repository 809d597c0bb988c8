"""One worker does what one must do; when it dies another takes over within seconds."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.domain.ids import new_id
from holdfast.settings.environment import Settings
from holdfast.storage.database.opening import OpenStore
from holdfast.storage.database.rows import change
from holdfast.storage.database.tables_history import Lease
from holdfast.storage.projects import projects
from holdfast.storage.sessions import leases
from holdfast.storage.upkeep.leadership import (
    EVERY_S,
    LIFE_S,
    NAME,
    FileLeadership,
    RowLeadership,
)
from tests.support.local_worker import until
from tests.support.sample_library import SampleLibrary
from tests.support.servers.product import HOLDFAST
from tests.support.waiting import wait_for
from worker.background import lead

# Beside the time that is promised: a busy machine, and the start of a loop.
SLACK_S = 20.0


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


async def test_one_of_several_leads_and_the_next_takes_over_after_its_life(
    either_store: OpenStore,
) -> None:
    clock = Clock()
    first, second, third = (RowLeadership(either_store, clock=clock) for _ in range(3))
    assert [await one.stand() for one in (first, second, third)] == [True, False, False]
    for _ in range(5):
        clock.now += LIFE_S / 2
        assert [await one.stand() for one in (first, second, third)] == [True, False, False]
    clock.now += LIFE_S - 0.1
    assert not await second.stand()
    clock.now += 0.1
    assert [await one.stand() for one in (second, third, first)] == [True, False, False]


async def test_a_wall_clock_that_is_wrong_makes_nobody_a_leader(either_store: OpenStore) -> None:
    clock = Clock()
    first, second = (RowLeadership(either_store, clock=clock) for _ in range(2))
    assert await first.stand()
    either_store.write(lambda db: change(db, Lease, NAME, expires_at=1))
    assert not await second.stand()
    assert await first.stand()
    clock.now += LIFE_S
    assert not await second.stand()


async def test_who_resigns_lets_another_lead_at_once(either_store: OpenStore) -> None:
    first, second = RowLeadership(either_store), RowLeadership(either_store)
    assert await first.stand()
    assert not await second.stand()
    await first.resign()
    assert await second.stand()
    await first.resign()
    assert not await first.stand()


async def test_processes_of_one_home_share_one_lead(tmp_path: Path) -> None:
    first, second = FileLeadership(tmp_path), FileLeadership(tmp_path)
    assert [await first.stand(), await second.stand(), await first.stand()] == [True, False, True]
    await first.resign()
    assert await second.stand()
    await second.resign()


async def test_loops_stop_when_the_lead_is_lost(postgres_store: OpenStore) -> None:
    candidate = RowLeadership(postgres_store)
    turns: list[str] = []

    async def loop() -> None:
        try:
            turns.append("began")
            await asyncio.sleep(3600)
        finally:
            turns.append("stopped")

    leading = asyncio.create_task(lead(candidate, {"loop": loop}, every_s=0.05))
    await until(lambda: turns == ["began"], "the loop to follow the lead")
    await postgres_store.awrite(lambda db: change(db, Lease, NAME, holder="other:1:x/leader"))
    await until(lambda: turns == ["began", "stopped"], "the loop to follow the lead")
    await postgres_store.awrite(lambda db: leases.release(db, NAME, "other:1:x/leader"))
    await until(lambda: turns == ["began", "stopped", "began"], "the loop to follow the lead")
    leading.cancel()
    await asyncio.gather(leading, return_exceptions=True)
    assert turns[-1] == "stopped"
    assert await RowLeadership(postgres_store).stand()


@pytest.fixture
def workers(
    postgres_store: OpenStore, postgres_url: str, temporal: str, tmp_path: Path
) -> Iterator[list[subprocess.Popen[bytes]]]:
    """Three real workers on one database, each with a home of its own."""
    queue = f"leading-{new_id()}"
    started = []
    for number in range(3):
        settings = Settings(
            home=tmp_path / f"machine-{number}",
            database_url=postgres_url,
            temporal_address=temporal,
            task_queue=queue,
        )
        kept = {key: value for key, value in os.environ.items() if not key.startswith("HOLDFAST_")}
        started.append(
            subprocess.Popen(
                [HOLDFAST, "worker"],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                env={**kept, **settings.child_environment()},
            )
        )
    yield started
    for child in started:
        if child.poll() is None:
            child.kill()
        child.wait(timeout=60.0)


def leader_pid(store: OpenStore) -> int | None:
    row = store.read(lambda db: db.get(Lease, NAME))
    return None if row is None else int(row.holder.split(":")[-2])


def test_a_killed_leader_is_followed_by_another_that_does_its_work(
    workers: list[subprocess.Popen[bytes]], postgres_store: OpenStore, tmp_path: Path
) -> None:
    SampleLibrary(postgres_store)
    folder = Path(postgres_store.read(projects.everywhere)[0].path)
    pids = {child.pid for child in workers}
    first = wait_for(lambda: leader_pid(postgres_store), "a leader")
    assert first in pids
    os.kill(first, signal.SIGKILL)
    began = time.monotonic()
    wait_for(lambda: leader_pid(postgres_store) in pids - {first}, "another leader")
    assert time.monotonic() - began < LIFE_S + EVERY_S + SLACK_S
    (folder / ".holdfast").mkdir(parents=True, exist_ok=True)
    (folder / ".holdfast" / "project.yaml").write_text("version: 1\nnonsense: true\n")
    wait_for(
        lambda: postgres_store.read(projects.everywhere)[0].state != "ready",
        "the new leader to see the broken file",
    )
