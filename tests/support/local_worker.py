"""The spine without its processes: a real Temporal server, a real worker, a store, no API."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

from temporalio.client import Client, WorkflowHandle
from temporalio.worker import Worker

from holdfast.domain.commands import (
    Answer,
    Cancel,
    Command,
    Compact,
    Move,
    NewMessage,
    Pause,
    Resume,
    RollBack,
)
from holdfast.domain.ids import new_id
from holdfast.settings.config import Config
from holdfast.settings.environment import Settings
from holdfast.storage.database.engine import Db
from holdfast.storage.database.opening import OpenStore
from holdfast.storage.database.rows import change
from holdfast.storage.database.tables import Message, Run, SessionRow
from holdfast.storage.database.tables_history import EventRow
from holdfast.storage.database.tables_hosts import HostRow
from holdfast.storage.hosts import hosts
from holdfast.storage.log import events
from holdfast.storage.projects import operators, project_file, projects
from holdfast.storage.sessions import admission, inbox, messages, runs, waiting
from holdfast.storage.sessions import sessions as session_rows
from holdfast.storage.sessions.admission import Admitted
from holdfast.temporal.connection import Connection, connect_patiently
from holdfast.temporal.memories import MemoryWorkflows
from holdfast.temporal.sessions import SessionWorkflows
from tests.support.servers.terminal_hosts import TestHost
from tests.support.stored_rows import frames_of
from worker.hosting import Hosting
from worker.main import make_worker
from worker.parts import Parts, build

DEADLINE_S = 120.0
STOP_S = 20.0
NO_GRACE = timedelta()
OVER = ("done", "failed", "cancelled")
T = TypeVar("T")


def script(*steps: dict[str, Any]) -> str:
    """A message that the scripted model plays."""
    return json.dumps({"script": list(steps)})


async def until(look: Callable[[], T | None], what: str) -> T:
    """The first truthy answer of `look`; AssertionError naming `what` when none comes."""
    deadline = time.monotonic() + DEADLINE_S
    while True:
        found = await asyncio.to_thread(look)
        if found:
            return found
        assert time.monotonic() < deadline, f"waited in vain for {what}"
        await asyncio.sleep(0.01)


class LocalWorker:
    """One operator with projects and sessions, driven by commands as the API sends them."""

    def __init__(
        self, store: OpenStore, folder: Path, address: str, host: TestHost, config: Config
    ) -> None:
        self.store = store
        self.folder = folder
        self.config = config
        self.settings = Settings(
            home=store.home,
            temporal_address=address,
            task_queue=f"worker-{new_id()}",
            terminal_socket=host.socket,
            host_name="local",
        )
        self._parts: Parts | None = None
        self._worker: Worker | None = None
        self._serving: asyncio.Task[None] | None = None
        self._hosting: Hosting
        self._beating: asyncio.Task[None]
        connection = Connection(self.settings)
        self.sessions = SessionWorkflows(connection)
        self.memories = MemoryWorkflows(connection)
        self.operator_id = store.write(
            lambda db: operators.add(db, f"worker-{new_id().lower()}").id
        )
        self.project_id = self.project()
        self.client: Client

    # Life ---------------------------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        client = await connect_patiently(self.settings, asyncio.Event())
        assert client is not None
        self.client = client
        self._parts = build(self.store, self.settings, lambda: self.config)
        await self.start_worker()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.stop_worker()
        assert self._parts is not None
        await self._parts.terminals.close()
        for pool in self._parts.pools:
            pool.close()

    async def start_worker(self) -> None:
        """Serve the worker's own task queue."""
        assert self._parts is not None
        self._worker = make_worker(
            self.client, self.settings.task_queue, self._parts, grace=NO_GRACE
        )
        self._serving = asyncio.create_task(self._worker.run())
        self._hosting = Hosting(self.client, self.settings, self.store, self._parts, grace=NO_GRACE)
        await self._hosting.beat()
        self._beating = asyncio.create_task(self._hosting.keep_forever())

    async def stop_worker(self) -> None:
        """Stop serving, cleanly.

        About one stop in ten thousand never ends: temporalio's core waits for a poll that nobody
        answers. As the supervisor does with a worker that takes too long, it is then given up.
        """
        if self._worker is None or self._serving is None:
            return
        await self._stop_hosting()
        worker, self._worker = self._worker, None
        stopping = asyncio.create_task(worker.shutdown())
        ended, _ = await asyncio.wait({self._serving}, timeout=STOP_S)
        if not ended:
            self._serving.cancel()
            stopping.cancel()
        await asyncio.gather(self._serving, stopping, return_exceptions=True)

    async def lose_host(self) -> None:
        """Nobody hears of the host any more; the workflows are served all the same."""
        await self._stop_hosting()
        for host in await self.store.aread(hosts.everywhere):
            await self.store.awrite(lambda db, key=host.id: change(db, HostRow, key, seen_at=0))  # type: ignore[misc]

    async def _stop_hosting(self) -> None:
        self._beating.cancel()
        await asyncio.gather(self._beating, return_exceptions=True)
        await self._hosting.stop()

    # Things -------------------------------------------------------------------------------------

    def project(self, text: str = "") -> str:
        """A folder loaded as a project; its agent is the scripted model."""
        name = f"project-{new_id().lower()}"
        folder = self.folder / name
        (folder / ".holdfast").mkdir(parents=True)
        body = text or "primary: {model: 'scripted:echo'}\n"
        (folder / ".holdfast" / "project.yaml").write_text(f"version: 1\nproject: {name}\n{body}")
        loaded = project_file.load(folder)
        return self.store.write(
            lambda db: projects.load(db, self.operator_id, loaded, trust=True)[0].id
        )

    def session(self, project_id: str | None = None, **columns: Any) -> str:
        """A new idle session's id."""
        found = self.store.read(
            lambda db: projects.get(db, self.operator_id, project_id or self.project_id)
        )
        row = SessionRow(
            id=new_id(),
            created_by=self.operator_id,
            working_directory=found.path,
            **projects.session_columns(found),
            **columns,
        )
        return self.store.write(lambda db: session_rows.create(db, row).id)

    # Commands -----------------------------------------------------------------------------------

    async def command(self, session_id: str, name: str, command: Command) -> Answer:
        """Send an update as the API does: with the start of the workflow, again until answered."""
        return await self.sessions.send(self.row(session_id), name, command)

    async def send(
        self,
        session_id: str,
        content: str,
        *,
        command_id: str = "",
        model: str | None = None,
        when_busy: str = "reject",
    ) -> Answer:
        """Stage a message and have the session take it."""
        message_id = command_id or new_id()
        await self.stage(session_id, message_id, content, model)
        asked = NewMessage(
            command_id=message_id,
            user_id=self.operator_id,
            message_id=message_id,
            when_busy=when_busy,
        )
        return await self.command(session_id, "message", asked)

    async def stage(
        self, session_id: str, message_id: str, content: str, model: str | None = None
    ) -> None:
        """Stage content as the API does, for a message that was not taken yet."""

        def stage(db: Db) -> None:
            if messages.find(db, message_id) is None and waiting.find(db, message_id) is None:
                inbox.stage(
                    db,
                    message_id=message_id,
                    session_id=session_id,
                    content=content,
                    model_override=model,
                )

        await self.store.awrite(stage)

    async def by_the_book(self, session_id: str, content: str) -> Admitted:
        """Admit a message in the database alone, as a step whose worker then died."""
        message_id, run_id = new_id(), new_id()

        def admit(db: Db) -> Admitted:
            inbox.stage(
                db,
                message_id=message_id,
                session_id=session_id,
                content=content,
                model_override=None,
            )
            return admission.admit(
                db, session_id, message_id=message_id, run_id=run_id, user_id=self.operator_id
            )

        return await self.store.awrite(admit)

    async def cancel(self, session_id: str, run_id: str | None = None) -> Answer:
        """Cancel the active run."""
        asked = Cancel(command_id=new_id(), user_id=self.operator_id, run_id=run_id)
        return await self.command(session_id, "cancel", asked)

    async def pause(self, session_id: str, reason: str = "look") -> Answer:
        """Pause at a checkpoint."""
        made = new_id()
        asked = Pause(command_id=made, user_id=self.operator_id, checkpoint_id=made, reason=reason)
        return await self.command(session_id, "checkpoint", asked)

    async def resume(
        self, session_id: str, checkpoint_id: str | None = None, *, words: str | None = None
    ) -> Answer:
        """Go on, from the queue or from the pause point, there perhaps with words."""
        command_id = new_id()
        if words is not None:
            await self.stage(session_id, command_id, words)
        asked = Resume(
            command_id=command_id,
            user_id=self.operator_id,
            checkpoint_id=checkpoint_id,
            message_id=None if words is None else command_id,
        )
        return await self.command(session_id, "resume", asked)

    async def roll_back(
        self, session_id: str, checkpoint_id: str, *, restore_files: bool = False
    ) -> Answer:
        """Go back to a checkpoint."""
        asked = RollBack(
            command_id=new_id(),
            user_id=self.operator_id,
            checkpoint_id=checkpoint_id,
            restore_files=restore_files,
        )
        return await self.command(session_id, "rollback", asked)

    async def move(self, session_id: str, host_id: str) -> Answer:
        """Go on on another host."""
        asked = Move(command_id=new_id(), user_id=self.operator_id, host_id=host_id)
        return await self.command(session_id, "move", asked)

    async def plain(self, session_id: str, name: str) -> Answer:
        """`discard`, `end`, `reopen` or `compact`: commands that carry nothing."""
        kind = Compact if name == "compact" else Command
        asked = kind(command_id=new_id(), user_id=self.operator_id)
        return await self.command(session_id, name, asked)

    def handle(self, session_id: str) -> WorkflowHandle[Any, Any]:
        """The session's workflow, whichever of its runs is the last."""
        return self.client.get_workflow_handle(session_id)

    # Waiting ------------------------------------------------------------------------------------

    async def run(self, session_id: str, content: str, **fields: Any) -> Run:
        """Send a message and wait until its run is over."""
        answer = await self.send(session_id, content, **fields)
        return await self.over(answer.run_id or "")

    async def over(self, run_id: str) -> Run:
        """Wait until a run is over and its session is idle again or beyond."""

        def ended() -> Run | None:
            run = self.run_row(run_id)
            return run if run.state in OVER else None

        return await until(ended, f"the end of run {run_id}")

    async def state(self, session_id: str, state: str) -> SessionRow:
        """Wait until a session is in this state."""

        def reached() -> SessionRow | None:
            row = self.row(session_id)
            return row if row.state == state else None

        return await until(reached, f"session {session_id} to be {state}")

    async def streaming(self, session_id: str, pieces: int = 1) -> str:
        """Wait until a model's words are on the output channel; what came so far."""

        def came() -> str | None:
            text = self.streamed(session_id)
            return text if len(text.split()) >= pieces else None

        return await until(came, "the first words")

    async def event(self, session_id: str, kind: str) -> EventRow:
        """Wait for an event of this kind; the newest."""

        def found() -> EventRow | None:
            matching = [one for one in self.events(session_id) if one.kind == kind]
            return matching[-1] if matching else None

        return await until(found, f"the event {kind}")

    # Looking ------------------------------------------------------------------------------------

    def row(self, session_id: str) -> SessionRow:
        """The session as the database has it."""
        return self.store.read(lambda db: session_rows.get(db, session_id))

    def run_row(self, run_id: str) -> Run:
        """The run as the database has it."""
        return self.store.read(lambda db: runs.get(db, run_id))

    def messages(self, session_id: str, *, all_of_them: bool = False) -> list[Message]:
        """The messages that count, or every one."""
        found = self.store.read(
            lambda db: messages.page(db, session_id, limit=10_000, include_superseded=all_of_them)
        )
        return [message for message, _ in found]

    def texts(self, session_id: str) -> list[str]:
        """The words of the messages that count."""
        return [message.content for message in self.messages(session_id)]

    def events(self, session_id: str) -> list[EventRow]:
        """The audit log."""
        return self.store.read(lambda db: events.after(db, session_id, 0, limit=100_000))

    def kinds(self, session_id: str) -> list[str]:
        """The kinds of the audit log's events, in order."""
        return [one.kind for one in self.events(session_id)]

    def streamed(self, session_id: str) -> str:
        """Every word of the output channel so far."""
        found = self.store.read(lambda db: frames_of(db, session_id))
        return "".join(one.payload["text"] for one in found if one.type == "delta")
