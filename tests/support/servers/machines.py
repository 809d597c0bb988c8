"""Machines of a fleet as homes of one machine: each with its own terminal host and worker process.

They share a Postgres, a Temporal server and the folders, so a session may be on any of them.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from holdfast.settings.config import Config
from holdfast.storage.database.opening import OpenStore
from holdfast.storage.database.tables import ToolCallRow
from holdfast.storage.database.tables_hosts import Execution, HostRow
from holdfast.storage.hosts import executions, hosts
from holdfast.temporal.connection import connect_patiently
from tests.support.local_worker import DEADLINE_S, LocalWorker, script, until
from tests.support.servers.product import HOLDFAST
from tests.support.servers.terminal_hosts import TestHost
from tests.support.stored_rows import tool_calls_of

LOST_AFTER_S = 120
CONFIG = "[fleet]\nhost_lost_after_s = {}\n"
UNCAGED = "primary: {model: 'scripted:echo', cage: disabled}\n"


class Machine:
    """A home with a terminal host and, while it is started, a worker."""

    def __init__(self, name: str, driver: LocalWorker, lost_after_s: int) -> None:
        self.name = name
        self.host = TestHost()
        self.home = self.host.folder / "home"
        self.home.mkdir()
        (self.home / "config.toml").write_text(CONFIG.format(lost_after_s), encoding="utf-8")
        self._driver = driver
        self._worker: asyncio.subprocess.Process | None = None

    @property
    def id(self) -> str:
        """The id of its terminal host."""
        return str(json.loads((self.host.state / "host.json").read_text())["id"])

    def environment(self) -> dict[str, str]:
        """What a part of this machine needs to know."""
        settings = self._driver.settings
        kept = {key: value for key, value in os.environ.items() if not key.startswith("HOLDFAST_")}
        mine = {
            "HOLDFAST_HOME": str(self.home),
            "HOLDFAST_DATABASE_URL": self._driver.store.url,
            "HOLDFAST_BLOBS_URL": (self._driver.store.home / "blobs").as_uri(),
            "HOLDFAST_TEMPORAL_ADDRESS": settings.temporal_address,
            "HOLDFAST_TASK_QUEUE": settings.task_queue,
            "HOLDFAST_TERMINAL_SOCKET": str(self.host.socket),
            "HOLDFAST_HOST_NAME": self.name,
            "HOLDFAST_DRAIN_S": "1",
            "HOLDFAST_POLLERS_MAX": "20",
        }
        return {**kept, **mine}

    async def start(self) -> None:
        """Start the terminal host and the worker, until the host is registered."""
        self.host.start()
        await self.start_worker()

    async def start_worker(self, *, hidden: Path | None = None) -> None:
        """Start a worker, until it says that its host is there.

        The folder `hidden` and its neighbours do not exist for it, as on a machine without them.
        """
        command = [HOLDFAST, "worker"]
        if hidden is not None:
            words = f"mount -t tmpfs none '{hidden.parent}' && exec {HOLDFAST} worker"
            command = ["unshare", "--mount", "sh", "-c", words]
        with (self.home / "worker.log").open("ab") as log:
            self._worker = await asyncio.create_subprocess_exec(
                *command,
                env=self.environment(),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        await until(self._is_up, f"{self.name} to be up")

    def _is_up(self) -> HostRow | None:
        row = self.row()
        return row if row is not None and hosts.state_of(row) == "up" else None

    def row(self) -> HostRow | None:
        """The host as the database has it."""
        return self._driver.store.read(lambda db: hosts.find(db, self.id))

    async def end_worker(self, number: signal.Signals) -> None:
        """End the worker by this signal, and wait until it is gone."""
        worker, self._worker = self._worker, None
        if worker is not None and worker.returncode is None:
            worker.send_signal(number)
            await worker.wait()

    async def close(self) -> None:
        """End everything."""
        await self.end_worker(signal.SIGKILL)
        self.host.stop()
        self.host.remove()


class Fleet:
    """Two machines, and a driver of sessions that is on neither."""

    def __init__(
        self, store: OpenStore, folder: Path, temporal: str, *, lost_after_s: int = LOST_AFTER_S
    ) -> None:
        self.folder = folder
        self._nowhere = TestHost()
        self.driver = LocalWorker(store, folder / "projects", temporal, self._nowhere, Config())
        self.first = Machine("first", self.driver, lost_after_s)
        self.second = Machine("second", self.driver, lost_after_s)

    async def __aenter__(self) -> Self:
        client = await connect_patiently(self.driver.settings, asyncio.Event())
        assert client is not None
        self.driver.client = client
        await asyncio.gather(self.first.start(), self.second.start())
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is not None:
            print(*(one.home.joinpath("worker.log").read_text() for one in self.machines))  # noqa: T201
        await asyncio.gather(*(machine.close() for machine in self.machines))
        self._nowhere.remove()

    @property
    def machines(self) -> tuple[Machine, Machine]:
        """Both of them."""
        return self.first, self.second

    def of(self, session_id: str) -> Machine:
        """The machine that has the session."""
        host_id = self.driver.row(session_id).host_id
        (found,) = [one for one in self.machines if one.id == host_id]
        return found

    def other(self, machine: Machine) -> Machine:
        """The one that this is not."""
        return self.second if machine is self.first else self.first

    def session(self) -> str:
        """A session without a cage, in a folder of its own."""
        return self.driver.session(self.driver.project(UNCAGED))

    async def placed(self) -> str:
        """A session that has a machine, idle for its workflow too."""
        session_id = self.session()
        await self.driver.run(session_id, script({"call": "list_files"}, {"say": "placed"}))
        await self.idle(session_id)
        return session_id

    async def idle(self, session_id: str) -> None:
        """Until the workflow says so too, whichever worker answers for it."""
        deadline = asyncio.get_running_loop().time() + DEADLINE_S
        while await self.driver.handle(session_id).query("state") != "idle":
            assert asyncio.get_running_loop().time() < deadline, "never idle"
            await asyncio.sleep(0.05)

    async def running(self, session_id: str, command: str) -> str:
        """Send a message that runs this command; its run, once the command has begun."""
        call = {"call": "shell", "arguments": {"command": command}}
        sent = await self.driver.send(session_id, script(call, {"say": "went on"}))
        await until(lambda: self.lines(session_id), "the command to begin")
        return sent.run_id or ""

    def file(self, session_id: str, name: str) -> Path:
        """A file in the session's folder."""
        return Path(self.driver.row(session_id).working_directory) / name

    def lines(self, session_id: str) -> list[str]:
        """What the command appended."""
        path = self.file(session_id, "lines")
        return path.read_text().splitlines() if path.exists() else []

    def execution(self, run_id: str) -> Execution:
        """The claim of the run's one command."""
        found = self.driver.store.read(lambda db: executions.find(db, self._call(run_id).id))
        assert found is not None
        return found

    def result(self, run_id: str) -> Any:
        """What came of the run's last tool call."""
        return self._call(run_id).output

    def _call(self, run_id: str) -> ToolCallRow:
        return self.driver.store.read(lambda db: tool_calls_of(db, run_id))[-1]
