"""The worker's own commands, when a session refuses them, breaks, or does not answer."""

from __future__ import annotations

import pytest
from temporalio.exceptions import ApplicationError
from temporalio.service import RPCError, RPCStatusCode

from holdfast.domain.commands import Answer, Command
from holdfast.domain.errors import Conflict, Unavailable
from holdfast.domain.ids import new_id
from holdfast.storage.chats import conversations, rows
from holdfast.storage.chats.conversations import Place, Wanted
from holdfast.storage.database.engine import Db
from holdfast.storage.database.tables import SessionRow
from holdfast.temporal.updates import WorkflowBroken
from tests.support.local_worker import LocalWorker, script
from worker.chats import drain
from worker.queue import start_waiting

TWO_SLOTS = "primary: {model: 'scripted:echo'}\nlimits: {running_sessions: 2}\nauto_resume: true\n"
REFUSED = [Conflict("busy"), WorkflowBroken(ApplicationError("words", type="KeyError"))]
UNKNOWN = [Unavailable("no answer"), RPCError("broken", RPCStatusCode.INTERNAL, b"")]


class FailingCommands:
    """Fails for one session; the others answer."""

    def __init__(self, session_id: str, error: Exception) -> None:
        self.session_id = session_id
        self.error = error
        self.answered: list[str] = []

    async def send(self, session: SessionRow, name: str, command: Command) -> Answer:
        """One command."""
        if session.id == self.session_id:
            raise self.error
        self.answered.append(session.id)
        return Answer(state="running")


@pytest.mark.req("K-122")
@pytest.mark.parametrize("error", REFUSED + UNKNOWN)
async def test_a_queued_session_that_fails_to_start_holds_nobody_up(
    worker: LocalWorker, error: Exception
) -> None:
    project = worker.project(TWO_SLOTS)
    holders = [worker.session(project) for _ in range(2)]
    waiting = [worker.session(project) for _ in range(2)]
    for holder in holders:
        await worker.send(holder, script({"hang_s": 60}))
    for session in waiting:
        await worker.send(session, "hello")
    for holder in holders:
        await worker.cancel(holder)
        await worker.state(holder, "idle")
    commands = FailingCommands(waiting[0], error)
    assert await start_waiting(commands, worker.store) == 1
    assert commands.answered == [waiting[1]]


@pytest.mark.parametrize(
    ("error", "state"),
    [(one, "queued") for one in REFUSED] + [(one, "sent") for one in UNKNOWN],
)
async def test_a_chat_message_waits_again_only_when_it_was_certainly_not_taken(
    worker: LocalWorker, error: Exception, state: str
) -> None:
    place = Place(worker.operator_id, "ann", "room")

    def say(db: Db) -> str:
        wanted = Wanted(project_id=worker.project_id)
        _, session = conversations.open_chat(db, worker.store.home, place, wanted)
        conversations.enqueue(db, place, session.id, new_id(), "hello")
        return session.id

    session = await worker.store.awrite(say)
    assert await drain(FailingCommands(session, error), worker.store) == 1
    [line] = worker.store.read(lambda db: rows.messages(db, *place.key))
    assert line.state == state
