"""Starts queued sessions of projects with `auto_resume: true` when a slot is free (K-122)."""

from __future__ import annotations

import asyncio

import structlog
from temporalio.client import Client, WorkflowUpdateFailedError
from temporalio.service import RPCError

from holdfast.domain.commands import Resume
from holdfast.domain.ids import new_id
from holdfast.settings.environment import Settings
from holdfast.storage.database.opening import OpenStore
from holdfast.storage.sessions import queue
from holdfast.storage.sessions.queue import Waiting
from worker.sending import send

log = structlog.get_logger()
EVERY_S = 0.5


async def start_forever(
    client: Client, settings: Settings, store: OpenStore, *, every_s: float = EVERY_S
) -> None:
    """Look for as long as the worker lives; what waits is in the database, not in here."""
    while True:
        await start_waiting(client, settings, store)
        await asyncio.sleep(every_s)


async def start_waiting(client: Client, settings: Settings, store: OpenStore) -> int:
    """One look; how many were started."""
    waiting = await store.aread(queue.startable)
    started = await asyncio.gather(*(_start(client, settings, one) for one in waiting))
    return sum(started)


async def _start(client: Client, settings: Settings, waiting: Waiting) -> bool:
    # A fresh id each time: a refusal is remembered by Temporal, and there may be a slot later.
    # The run's id is what makes it safe: another worker, or the operator, may have been quicker.
    command = Resume(command_id=new_id(), user_id=waiting.operator_id, queued_run=waiting.run_id)
    try:
        await send(client, settings.task_queue, waiting.session_id, "resume", command)
    except WorkflowUpdateFailedError as error:
        log.info("queue.refused", session=waiting.session_id, reason=str(error.cause)[:200])
        return False
    except RPCError as error:
        log.warning("queue.not_sent", session=waiting.session_id, reason=error.message[:200])
        return False
    return True
