"""Asks the host of a session what the session changed in its folder."""

from __future__ import annotations

from holdfast.domain.checkpoint_steps import (
    SHOW_CHANGES,
    ChangesFound,
    ChangesStart,
    ChangesStep,
    changes_workflow_id,
)
from holdfast.domain.errors import Unavailable
from holdfast.domain.ids import new_id
from holdfast.domain.wire import CHANGES_WORKFLOW
from holdfast.storage.database.tables import SessionRow
from holdfast.temporal.connection import Connection

ANSWER_S = 60.0
# So long a Temporal that cannot be reached is waited for: it may be starting.
AWAY_S = 5.0
NO_ANSWER = "the session's host did not answer in time; the same request may be repeated"


class ChangesWorkflows:
    """One workflow per session, only while somebody asks."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    async def show(self, session: SessionRow, step: ChangesStep) -> str:
        """The blob with the answer; a Refusal, or Unavailable."""
        from holdfast.temporal.starts import Start
        from holdfast.temporal.updates import Unanswered, Update, WorkflowBroken

        start = Start(
            workflow=CHANGES_WORKFLOW,
            argument=ChangesStart(session.id),
            id=changes_workflow_id(session.id),
            task_queue=self._connection.settings.task_queue,
            search_attributes={"Project": session.project_id, "Operator": session.created_by},
            summary="changes",
        )
        update = Update(SHOW_CHANGES, step, new_id(), ChangesFound, start)
        try:
            return (
                await update.answer(self._connection, within_s=ANSWER_S, away_max_s=AWAY_S)
            ).blob_id
        except (Unanswered, WorkflowBroken) as error:
            raise Unavailable(NO_ANSWER) from error
