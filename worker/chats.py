"""Sends chat messages that wait for their turn, and logs what was answered."""

from __future__ import annotations

import asyncio

import structlog
from temporalio.service import RPCError

from holdfast.domain.commands import NewMessage
from holdfast.domain.errors import Refusal, Unavailable
from holdfast.storage.chats import conversations, rows
from holdfast.storage.database.engine import Db
from holdfast.storage.database.opening import OpenStore
from holdfast.storage.database.tables_library import ChatMessage
from holdfast.temporal.sessions import SessionCommands
from holdfast.temporal.updates import WorkflowBroken

log = structlog.get_logger()
LINES_MAX = 200
BUSY_PAUSE_S, IDLE_PAUSE_S = 0.3, 1.0
# Sent, but taken by nobody: the sender died in between.
LOST_AFTER_MS = 30_000


async def drain_forever(commands: SessionCommands, store: OpenStore) -> None:
    """Look after every chat for as long as the worker lives."""
    while True:
        left = await drain(commands, store)
        await asyncio.sleep(BUSY_PAUSE_S if left else IDLE_PAUSE_S)


async def drain(commands: SessionCommands, store: OpenStore) -> int:
    """One round; how many lines still wait or are being answered."""
    sent = await store.aread(lambda db: rows.in_state(db, "sent", limit=LINES_MAX))
    for line in sent:
        await store.awrite(
            lambda db, line=line: conversations.settle(db, line, lost_after_ms=LOST_AFTER_MS)  # type: ignore[misc]
        )
    queued = await store.aread(lambda db: rows.in_state(db, "queued", limit=LINES_MAX))
    for line in queued:
        await _send(commands, store, line)
    return len(sent) + len(queued)


async def _send(commands: SessionCommands, store: OpenStore, line: ChatMessage) -> None:
    session = await store.awrite(lambda db: conversations.claim_next(db, store.home, line))
    if session is None:
        return
    command = NewMessage(command_id=line.id, user_id=line.operator_id, message_id=line.id)
    try:
        await commands.send(session, "message", command)
    except (Unavailable, RPCError) as error:
        # Unknown whether it arrived: `settle` finds out, and the same id is taken only once.
        log.warning("chats.not_sent", message_id=line.id, reason=str(error)[:200])
    except (Refusal, WorkflowBroken) as error:
        # Refused: somebody else was quicker. The line waits for the next turn.
        log.info("chats.refused", message_id=line.id, reason=str(error)[:200])
        await store.awrite(lambda db: _wait_again(db, line.id))


def _wait_again(db: Db, message_id: str) -> None:
    conversations.take_back(db, message_id, state="queued")
