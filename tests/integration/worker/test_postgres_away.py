"""Workers over a Postgres that goes away: steps are tried again, starting parts wait for it."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest

from holdfast.domain.errors import Unavailable
from holdfast.settings.config import Config
from holdfast.settings.environment import Settings
from holdfast.storage.database.engine import ping
from holdfast.storage.database.opening import open_store
from holdfast.supervisor import ports
from tests.support.local_worker import LocalWorker, script, until
from tests.support.servers.postgres import PostgresCluster
from tests.support.servers.product import HOLDFAST
from tests.support.servers.terminal_hosts import TestHost
from tests.support.waiting import wait_for

Mortal = tuple[PostgresCluster, str]
UNCAGED = "primary: {model: 'scripted:echo', cage: disabled}\n"
WAITING = "waiting_for_database"
SHELL = "touch began; while [ ! -e go ]; do sleep 0.05; done; echo once >> ends"


@pytest.mark.parametrize("end", ["halt", "kill"])
async def test_a_run_goes_on_after_postgres_was_away_and_its_command_ran_once(
    mortal_postgres: Mortal, temporal: str, spare_host: TestHost, tmp_path: Path, end: str
) -> None:
    cluster, url = mortal_postgres
    store = await asyncio.to_thread(open_store, url, tmp_path / "home")
    async with LocalWorker(store, tmp_path, temporal, spare_host, Config()) as worker:
        session = worker.session(worker.project(UNCAGED))
        folder = Path(worker.row(session).working_directory)
        call = {"call": "shell", "arguments": {"command": SHELL}}
        run = (await worker.send(session, script(call, {"say": "done"}))).run_id or ""
        await until(lambda: (folder / "began").exists(), "the command to run")
        await asyncio.to_thread(getattr(cluster, end))
        with pytest.raises(Unavailable):
            await store.aread(ping)
        (folder / "go").touch()
        await until(lambda: (folder / "ends").exists(), "the command's end")
        await asyncio.to_thread(cluster.serve)

        def is_back() -> bool:
            try:
                store.read(ping)
            except Unavailable:
                return False
            return True

        await until(is_back, "the store to work again")
        assert (await worker.over(run)).state == "done"
        assert (folder / "ends").read_text() == "once\n"
        assert (await worker.run(session, script({"say": "again"}))).state == "done"
    store.close()


class Starting:
    """The real processes of a fleet's machine, and what they said."""

    def __init__(self, url: str, temporal: str, folder: Path) -> None:
        self.settings = Settings(
            home=folder / "home",
            bind=f"127.0.0.1:{ports.free_port()}",
            database_url=url,
            temporal_address=temporal,
            task_queue=f"starting-{folder.name}",
        )
        self.folder = folder
        self.children = {part: self._run(part) for part in ("api", "worker")}

    def words(self, part: str) -> str:
        return (self.folder / part).read_text(encoding="utf-8", errors="replace")

    def wait_until_both_wait(self) -> None:
        for part in self.children:
            wait_for(lambda name=part: WAITING in self.words(name), f"{part} to say that it waits")  # type: ignore[misc]

    def is_ready(self) -> bool:
        try:
            address = f"{self.settings.api_url}/readyz"
            return httpx2.get(address, timeout=5.0, trust_env=False).status_code == 200
        except httpx2.TransportError:
            return False

    def stop(self) -> dict[str, int]:
        for child in self.children.values():
            child.send_signal(signal.SIGTERM)
        return {part: child.wait(timeout=60.0) for part, child in self.children.items()}

    def _run(self, part: str) -> subprocess.Popen[bytes]:
        kept = {key: value for key, value in os.environ.items() if not key.startswith("HOLDFAST_")}
        with (self.folder / part).open("ab") as said:
            return subprocess.Popen(
                [HOLDFAST, part],
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=said,
                env={**kept, **self.settings.child_environment()},
            )


@pytest.fixture
def starting(mortal_postgres: Mortal, temporal: str, tmp_path: Path) -> Iterator[Starting]:
    """An API and a worker, started while Postgres is away."""
    cluster, url = mortal_postgres
    cluster.kill()
    running = Starting(url, temporal, tmp_path)
    yield running
    for child in running.children.values():
        if child.poll() is None:
            child.kill()
            child.wait(timeout=60.0)


def test_an_api_and_a_worker_that_start_while_postgres_is_away_wait_for_it(
    starting: Starting, mortal_postgres: Mortal
) -> None:
    starting.wait_until_both_wait()
    assert [child.poll() for child in starting.children.values()] == [None, None]
    assert "backup" not in starting.words("api") + starting.words("worker")
    mortal_postgres[0].serve()
    wait_for(starting.is_ready, "both to be ready")
    assert starting.stop()["worker"] == 0


def test_a_waiting_worker_ends_cleanly_when_it_is_asked_to(starting: Starting) -> None:
    starting.wait_until_both_wait()
    assert starting.stop()["worker"] == 0
