"""The worker's own commands, when a session refuses them, breaks, or does not answer."""

from __future__ import annotations

import pytest
from temporalio.exceptions import ApplicationError
from temporalio.service import RPCError, RPCStatusCode

from holdfast.domain.commands import Answer, Command
from holdfast.domain.errors import Conflict, Unavailable
from holdfast.storage.chats import chat_log
from holdfast.storage.database.tables import SessionRow
from holdfast.temporal.updates import WorkflowBroken
from tests.support.chat_lines import open_chat, queue_lines
from tests.support.local_worker import LocalWorker, script
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
    [(one, "queued" if isinstance(one, Conflict) else "sent") for one in REFUSED + UNKNOWN],
)
async def test_a_chat_message_waits_again_only_when_it_was_certainly_not_taken(
    worker: LocalWorker, error: Exception, state: str
) -> None:
    chats, chat, place = await open_chat(worker)
    session_id = await queue_lines(chat, place, "hello")
    assert await chats.deliver(FailingCommands(session_id, error))
    [line] = worker.store.read(lambda db: chat_log.get_messages(db, place))
    assert line.state == state
