"""The workflows of sessions: each is started with what the Temporal UI shows, and sent commands."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from holdfast.domain.commands import Answer, Command
from holdfast.domain.errors import Unavailable
from holdfast.domain.session_start import SessionStart
from holdfast.domain.wire import WORKFLOW
from holdfast.storage.database.tables import SessionRow
from holdfast.temporal.connection import Connection

if TYPE_CHECKING:
    from holdfast.temporal.starts import Start

ANSWER_TIMEOUT_S = 15.0
# A compaction may wait a minute for its summary, and many files take their time to come back.
PATIENCE_S = {"compact": 100.0, "rollback": 60.0}
SUMMARY_CHARS_MAX, TITLE_CHARS_MAX = 120, 200
NO_ANSWER = "the session did not answer in time; the same request may be repeated"


class SessionCommands(Protocol):
    """Sends commands to sessions; tests bring their own."""

    async def send(self, session: SessionRow, name: str, command: Command) -> Answer:
        """Send `command` as the update `name`: its answer, a Refusal, or Unavailable."""


class SessionWorkflows:
    """Every start of a session's workflow goes through here; one that is lost starts again."""

    def __init__(
        self, connection: Connection, *, answer_timeout_s: float = ANSWER_TIMEOUT_S
    ) -> None:
        self.answer_timeout_s = answer_timeout_s
        self._connection = connection

    async def send(self, session: SessionRow, name: str, command: Command) -> Answer:
        """Send `command` as the update `name` until it is answered: Refusal, or Unavailable."""
        from holdfast.temporal.updates import Unanswered, Update

        update = Update(name, command, command.command_id, Answer, self._start(session))
        patience_s = max(self.answer_timeout_s, PATIENCE_S.get(name, 0.0))
        try:
            return await update.answer(self._connection, within_s=patience_s)
        except Unanswered as error:
            raise Unavailable(NO_ANSWER) from error

    async def start(self, session: SessionRow) -> None:
        """Start the session's workflow where it is lost; it goes on from the database."""
        await self._start(session).send(await self._connection.client())

    def _start(self, session: SessionRow) -> Start:
        from holdfast.temporal.starts import Start

        return Start(
            workflow=WORKFLOW,
            argument=SessionStart(session.id),
            id=session.id,
            task_queue=self._connection.settings.task_queue,
            search_attributes={
                "SessionState": session.state,
                "Project": session.project_id,
                "Operator": session.created_by,
                "Title": (session.title or "")[:TITLE_CHARS_MAX],
            },
            summary=(session.title or session.id)[:SUMMARY_CHARS_MAX],
        )
