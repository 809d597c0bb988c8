"""A session with a real project file, driven at the level of steps: no Temporal, no API."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from activities.compaction.steps import CompactionActivities
from activities.context import Context, build
from activities.terminals import Terminals
from holdfast.domain.compaction_steps import Compacted, CompactStep
from holdfast.domain.ids import new_id
from holdfast.settings.config import Config
from holdfast.storage.database.engine import Db
from holdfast.storage.database.opening import OpenStore
from holdfast.storage.database.tables import Message, SessionRow, ToolCallRow
from holdfast.storage.projects import operators, project_file, projects
from holdfast.storage.sessions import admission, inbox, messages, runs, sessions
from holdfast.storage.sessions.tool_calls import add, close
from tests.support.servers.terminal_hosts import TestHost

WINDOW_TOKENS = 4000
QUIET = """
version: 1
project: quiet
primary: {model: "scripted:echo", tools: {"*": {enabled: false}}}
"""


class StepRunner:
    """One operator, one project, one session."""

    def __init__(
        self,
        store: OpenStore,
        folder: Path,
        text: str = QUIET,
        *,
        host: TestHost | None = None,
        operator: str = "alice",
    ) -> None:
        self.store = store
        self.folder = folder
        (folder / ".holdfast").mkdir(parents=True)
        (folder / ".holdfast" / "project.yaml").write_text(text)
        providers = {"scripted": {"driver": "scripted", "context_window": WINDOW_TOKENS}}
        self.config = Config.model_validate({"providers": providers})
        # Without a host nothing that asks for one can work.
        socket, state = (folder, folder) if host is None else (host.socket, host.state)
        self.terminals = Terminals(store, socket, state)
        self.compaction = CompactionActivities(store, lambda: self.config, self.terminals)
        loaded = project_file.load(folder)

        def prepare(db: Db) -> tuple[str, str]:
            owner = operators.add(db, operator).id
            project, _ = projects.load(db, owner, loaded, trust=True)
            return owner, project.id

        self.operator_id, self.project_id = store.write(prepare)
        self.session_id = self.session()

    def session(self) -> str:
        """A new idle session."""
        project = self.store.read(lambda db: projects.get(db, self.operator_id, self.project_id))
        row = SessionRow(
            id=new_id(),
            created_by=self.operator_id,
            working_directory=str(self.folder),
            **projects.session_columns(project),
        )
        return self.store.write(lambda db: sessions.create(db, row).id)

    def begin(self, content: str = "please") -> str:
        """A message of the operator and its run."""
        message_id, run_id = new_id(), new_id()

        def admit(db: Db) -> None:
            inbox.stage(
                db,
                message_id=message_id,
                session_id=self.session_id,
                content=content,
                model_override=None,
            )
            admission.admit(
                db,
                self.session_id,
                message_id=message_id,
                run_id=run_id,
                user_id=self.operator_id,
            )

        self.store.write(admit)
        return run_id

    def finish(self, run_id: str) -> None:
        """The run is done."""
        self.store.write(lambda db: runs.finish(db, run_id, trigger="run.done", state="done"))

    def say(self, role: str, content: str, **columns: Any) -> Message:
        """A message in the session."""
        return self.store.write(
            lambda db: messages.append(db, self.session_id, role=role, content=content, **columns)
        )

    def use_tool(self, run_id: str, result: str, *, name: str = "read_file") -> None:
        """An answer that calls a tool, and its result."""
        call_id, row_id = f"call_{new_id()}", new_id()

        def use(db: Db) -> None:
            asked = messages.append(
                db,
                self.session_id,
                role="primary",
                content="I look.",
                run_id=run_id,
                tool_calls=[{"id": call_id, "name": name, "arguments": {"path": "a"}}],
            )
            row = ToolCallRow(
                id=row_id,
                run_id=run_id,
                session_id=self.session_id,
                caller="primary",
                provider_call_id=call_id,
                message_id=asked.id,
                tool_name=name,
                input={"path": "a"},
            )
            add(db, [row])
            close(db, row, text=result, output={"result": result})

        self.store.write(use)

    def context(self) -> Context:
        """What the root agent's model would be shown."""
        return self.store.read(lambda db: build(db, self.store.blobs, self.config, self.session_id))

    def step(self, trigger: str = "threshold_crossed", **fields: Any) -> CompactStep:
        """A compaction to be made."""
        values: dict[str, Any] = {"compaction_id": new_id(), "checkpoint_id": new_id(), **fields}
        return CompactStep(session_id=self.session_id, trigger=trigger, **values)

    async def compact(self, trigger: str = "threshold_crossed", **fields: Any) -> Compacted:
        """Make a compaction."""
        return await self.compaction.compact(self.step(trigger, **fields))

    def history(self) -> list[Message]:
        """The messages that count."""
        return self.store.read(lambda db: messages.history(db, self.session_id))

    def state(self) -> SessionRow:
        """The session."""
        return self.store.read(lambda db: sessions.get(db, self.session_id))
