"""Sessions that run in the database but have no workflow: after a lost Temporal file."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import structlog
from sqlalchemy import select
from temporalio.client import Client
from temporalio.common import WorkflowIDConflictPolicy

from holdfast.domain.lifecycle import State
from holdfast.domain.session_start import SessionStart
from holdfast.domain.wire import TASK_TIMEOUT_S, WORKFLOW
from holdfast.settings.environment import Settings
from holdfast.storage.database.engine import Db
from holdfast.storage.database.opening import OpenStore
from holdfast.storage.database.rows import table
from holdfast.storage.database.tables import SessionRow

log = structlog.get_logger()
_sessions = table(SessionRow)
SESSIONS_MAX = 10_000
EVERY_S = 60.0


async def watch_forever(client: Client, settings: Settings, store: OpenStore) -> None:
    """Look at the start and then every minute, for a workflow can be lost while we live."""
    while True:
        await restart_lost(client, settings, store)
        await asyncio.sleep(EVERY_S)


async def restart_lost(client: Client, settings: Settings, store: OpenStore) -> None:
    """Start the workflow of every running session; one that is there stays as it is."""
    for session_id in await store.aread(_running):
        await client.start_workflow(
            WORKFLOW,
            SessionStart(session_id),
            id=session_id,
            task_queue=settings.task_queue,
            task_timeout=timedelta(seconds=TASK_TIMEOUT_S),
            id_conflict_policy=WorkflowIDConflictPolicy.USE_EXISTING,
        )


def _running(db: Db) -> list[str]:
    rows = select(_sessions.c.id).where(_sessions.c.state == State.RUNNING.value)
    return [row.id for row in db.connection().execute(rows.limit(SESSIONS_MAX))]
