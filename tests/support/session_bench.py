"""The steps that move a session on a store alone, and what they told."""

from __future__ import annotations

from typing import Any

from activities.sessions import SessionActivities
from holdfast.domain.steps import EndStep, FinishStep
from holdfast.storage.database.opening import OpenStore
from holdfast.storage.database.tables import Run
from holdfast.storage.log import events
from holdfast.storage.sessions import runs
from tests.support.workflow_double import WorkflowDouble


class SessionBench:
    """A library, the steps on it, and what they told."""

    def __init__(self, store: OpenStore) -> None:
        self.store = store
        self.library = WorkflowDouble(store)
        self.steps = SessionActivities(store)
        self.operator = self.library.operator_id

    def told(self, session_id: str, kind: str) -> list[dict[str, Any]]:
        """The data of the session's events of this kind, in order."""
        rows = self.store.read(lambda db: events.after(db, session_id, 0, limit=500))
        return [row.data for row in rows if row.kind == kind]

    def moves(self, session_id: str) -> list[tuple[str, str, str]]:
        """Every change of state: from, to, and what caused it."""
        found = self.told(session_id, "session.state")
        return [(one["from_state"], one["to_state"], one["trigger"]) for one in found]

    def run_row(self, run_id: str) -> Run:
        """The run as the database has it."""
        return self.store.read(lambda db: runs.get(db, run_id))

    async def end(self, session_id: str) -> None:
        """The operator ends the session."""
        await self.steps.end_session(EndStep(session_id=session_id, user_id=self.operator))

    async def fail(self, session_id: str) -> None:
        """The session cannot go on."""
        step = EndStep(
            session_id=session_id,
            user_id="",
            error_code="store_damaged",
            error_message="a blob is missing",
        )
        await self.steps.fail_session(step)

    async def finish(self, session_id: str, run_id: str, state: str = "done") -> None:
        """The run is over."""
        step = FinishStep(
            session_id=session_id,
            run_id=run_id,
            state=state,
            trigger=f"run.{state}",
            user_id=self.operator,
        )
        await self.steps.finish_run(step)
