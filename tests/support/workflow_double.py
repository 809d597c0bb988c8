"""Drives sessions at the level of storage: runs, pauses, compactions, rollbacks, forks."""

from __future__ import annotations

from typing import Any

from sqlalchemy import select

from holdfast.domain.ids import new_id
from holdfast.storage.database.engine import Db
from holdfast.storage.database.opening import OpenStore
from holdfast.storage.database.rows import insert_once, table
from holdfast.storage.database.tables import SessionRow, SubagentInvocation, ToolCallRow
from holdfast.storage.database.tables_history import Checkpoint, Compaction, Head
from holdfast.storage.moves import (
    checkpoints,
    compactions,
    forks,
    heads,
    message_points,
    rollback,
)
from holdfast.storage.moves.head_deltas import KINDS
from holdfast.storage.sessions import (
    admission,
    inbox,
    messages,
    runs,
    sessions,
    supersessions,
    tool_calls,
)
from tests.support.sample_library import SampleLibrary

PROMPTS = {"primary": "You are the root.", "primary.subagents.helper": "You help."}


class WorkflowDouble(SampleLibrary):
    """A library whose sessions can be worked with."""

    def __init__(self, store: OpenStore) -> None:
        super().__init__(store)
        self.opened = store

    def fill(self, session_id: str, count: int) -> None:
        """Many messages in one transaction."""

        def say(db: Db) -> None:
            for number in range(count):
                messages.append(db, session_id, role="operator", content=f"message {number}")

        self.store.write(say)

    def begin(self, session_id: str, content: str = "please") -> str:
        """A message and its run, running; the run's id."""
        message_id, run_id = new_id(), new_id()

        def admit(db: Db) -> None:
            inbox.stage(
                db,
                message_id=message_id,
                session_id=session_id,
                content=content,
                model_override=None,
            )
            admission.admit(
                db,
                session_id,
                message_id=message_id,
                run_id=run_id,
                user_id=self.operator_id,
            )

        self.store.write(admit)
        return run_id

    def finish(self, run_id: str, answer: str = "done", *, state: str = "done") -> str:
        """The run's answer, its end and its head; the head's id."""

        def end(db: Db) -> str:
            run = runs.get(db, run_id)
            said = messages.append(
                db, run.session_id, role="primary", content=answer, run_id=run_id
            )
            runs.answer(db, run_id, said.id)
            runs.finish(db, run_id, trigger="run.done", state=state)
            return heads.create(db, self.opened.blobs, run.session_id, run_id=run_id)

        return self.store.write(end)

    def run(self, session_id: str, content: str = "please") -> str:
        """A whole run; its head's id."""
        return self.finish(self.begin(session_id, content))

    def pause(
        self, session_id: str, reason: str = "look", *, prompts: dict[str, str] | None = None
    ) -> Checkpoint:
        """A checkpoint of the running session."""
        checkpoint_id = new_id()
        return self.store.write(
            lambda db: checkpoints.create(
                db,
                self.opened.blobs,
                checkpoint_id=checkpoint_id,
                session_id=session_id,
                created_by="operator",
                prompts=prompts or PROMPTS,
                run_id=sessions.get(db, session_id).active_run,
                reason=reason,
            )
        )

    def resume(
        self, session_id: str, checkpoint_id: str | None = None, **options: Any
    ) -> SessionRow:
        """On from the pause point."""
        options.setdefault("command_id", new_id())
        return self.store.write(
            lambda db: checkpoints.resume(
                db, self.opened.blobs, session_id, checkpoint_id, **options
            )
        )

    def roll_back(self, session_id: str, checkpoint_id: str, **options: Any) -> rollback.Outcome:
        """Back to a checkpoint."""
        return self.store.write(
            lambda db: rollback.roll_back(db, session_id, checkpoint_id, **options)
        )

    def roll_back_to_message(
        self, session_id: str, message_id: str, **options: Any
    ) -> rollback.Outcome:
        """Back to right before a message."""
        checkpoint_id = options.pop("checkpoint_id", new_id())

        def back(db: Db) -> rollback.Outcome:
            blobs = self.opened.blobs
            message_points.make(db, blobs, session_id, message_id, checkpoint_id=checkpoint_id)
            return rollback.roll_back(db, session_id, checkpoint_id, **options)

        return self.store.write(back)

    def fork(self, source: str, **options: Any) -> str:
        """A fork's id."""
        fresh = new_id()
        return self.store.write(
            lambda db: (
                forks.fork(
                    db,
                    self.opened.blobs,
                    source_session=source,
                    operator=self.operator_id,
                    new_session_id=fresh,
                    **options,
                ).id
            )
        )

    def compact(self, session_id: str, message_ids: list[str]) -> Compaction:
        """A compaction that is carried out."""
        record = Compaction(
            id=new_id(),
            session_id=session_id,
            created_at=1,
            trigger="operator_manual",
            strategy="summarize",
            superseded_message_ids=message_ids,
        )
        return self.store.write(lambda db: compactions.carry_out(db, record, summary="In short."))

    def supersede(self, session_id: str, ids: list[str], cause: str, cause_id: str) -> int:
        """Supersede messages for a cause."""
        return self.store.write(
            lambda db: supersessions.supersede(db, session_id, ids, cause, cause_id)
        )

    def call(self, session_id: str, run_id: str, name: str = "shell", **given: Any) -> str:
        """A tool call without a result; its id."""
        call = ToolCallRow(
            id=new_id(),
            run_id=run_id,
            session_id=session_id,
            caller="primary",
            tool_name=name,
            input=given,
        )
        self.store.write(lambda db: tool_calls.add(db, [call]))
        return call.id

    def subagent(self, session_id: str, run_id: str, name: str = "helper") -> str:
        """A subagent at work; its invocation's id."""
        row = SubagentInvocation(
            id=new_id(),
            run_id=run_id,
            session_id=session_id,
            subagent_name=name,
            agent_path=f"primary.subagents.{name}",
            state="running",
        )
        self.store.write(lambda db: insert_once(db, SubagentInvocation, row.model_dump()))
        return row.id

    def row(self, session_id: str) -> SessionRow:
        """The session as it is."""
        return self.store.read(lambda db: sessions.get(db, session_id))

    def seen(self, session_id: str) -> list[tuple[str, list[str]]]:
        """Every message that the session sees, with why it is superseded."""
        page = self.store.read(
            lambda db: messages.page(db, session_id, limit=10_000, include_superseded=True)
        )
        return [
            (message.id, sorted(f"{cause['cause']}:{cause['cause_id']}" for cause in causes))
            for message, causes in page
        ]

    def texts(self, session_id: str) -> list[str]:
        """What a model would be shown."""
        rows = self.store.read(lambda db: messages.history(db, session_id))
        return [row.content for row in rows]

    def state(self, head_id: str) -> dict[str, Any]:
        """A head's state, put together again; lists by id."""
        state = heads.materialize(self.opened.blobs, head_id)
        return _by_id(state["collections"])

    def state_in_tables(self, session_id: str) -> dict[str, Any]:
        """What a head made now should hold, straight from the tables; without heads."""

        def read(db: Db) -> dict[str, Any]:
            found: dict[str, list[dict[str, Any]]] = {
                "messages": [
                    {"id": message_id, "superseded_by": causes}
                    for message_id, causes in self.seen(session_id)
                ]
            }
            for name, kind in KINDS.items():
                place = table(kind.model)
                rows = db.connection().execute(
                    select(place).where(place.c.session_id == session_id)
                )
                found[name] = [{fact: getattr(row, fact) for fact in kind.facts} for row in rows]
            return _by_id(found)

        return self.store.read(read)

    def head(self, head_id: str) -> Head:
        """The head's facts."""
        found = self.store.read(lambda db: heads.find(db, head_id))
        assert found is not None
        return found


def comparable(state: dict[str, Any]) -> dict[str, Any]:
    """A state without what the tables alone cannot say: hashes, and the list of heads."""
    messages_only = {
        key: {"id": entry["id"], "superseded_by": entry["superseded_by"]}
        for key, entry in state["messages"].items()
    }
    return {**{name: state[name] for name in KINDS}, "messages": messages_only}


def _by_id(collections: dict[str, list[dict[str, Any]]]) -> dict[str, Any]:
    return {
        name: {entry["id"]: entry for entry in entries} for name, entries in collections.items()
    }
