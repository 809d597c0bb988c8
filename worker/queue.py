"""Starts queued sessions of projects with `auto_resume: true` when a slot is free (K-122)."""

from __future__ import annotations

import asyncio
from functools import partial

import structlog
from temporalio.service import RPCError

from holdfast.domain.commands import Resume
from holdfast.domain.errors import Refusal, Unavailable
from holdfast.domain.ids import new_id
from holdfast.storage.database.opening import OpenStore
from holdfast.storage.sessions import sessions
from holdfast.storage.upkeep import queue
from holdfast.storage.upkeep.queue import Waiting
from holdfast.temporal.sessions import SessionCommands
from holdfast.temporal.updates import WorkflowBroken

log = structlog.get_logger()
EVERY_S = 1.0


async def start_forever(
    commands: SessionCommands, store: OpenStore, *, every_s: float = EVERY_S
) -> None:
    """Look for as long as the worker lives; what waits is in the database, not in here."""
    while True:
        await start_waiting(commands, store)
        await asyncio.sleep(every_s)


async def start_waiting(commands: SessionCommands, store: OpenStore) -> int:
    """One look; how many were started."""
    waiting = await store.aread(queue.startable)
    started = await asyncio.gather(*(_start(commands, store, one) for one in waiting))
    return sum(started)


async def _start(commands: SessionCommands, store: OpenStore, waiting: Waiting) -> bool:
    # A fresh id each time: a refusal is remembered by Temporal, and there may be a slot later.
    # The run's id is what makes it safe: another worker, or the operator, may have been quicker.
    command = Resume(command_id=new_id(), user_id=waiting.operator_id, queued_run=waiting.run_id)
    try:
        session = await store.aread(partial(sessions.get, session_id=waiting.session_id))
        await commands.send(session, "resume", command)
    except (Unavailable, RPCError) as error:
        log.warning("queue.not_sent", session=waiting.session_id, reason=str(error)[:200])
        return False
    except (Refusal, WorkflowBroken) as error:
        log.info("queue.refused", session=waiting.session_id, reason=str(error)[:200])
        return False
    return True
