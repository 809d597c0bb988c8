"""Sessions that run in the database but have no workflow: after a lost Temporal file."""

from __future__ import annotations

import asyncio
from functools import partial

from holdfast.domain.lifecycle import State
from holdfast.storage.database.opening import OpenStore
from holdfast.storage.sessions import runs, sessions, waiting
from holdfast.temporal.sessions import SessionWorkflows

SESSIONS_MAX = 10_000
EVERY_S = 60.0
_running = partial(sessions.in_state, state=State.RUNNING, limit=SESSIONS_MAX)
_waiting = partial(waiting.idle_sessions, limit=SESSIONS_MAX)
_compacting = partial(runs.compacting_sessions, limit=SESSIONS_MAX)


async def watch_forever(workflows: SessionWorkflows, store: OpenStore) -> None:
    """Look at the start and then every minute, for a workflow can be lost while we live."""
    await close_lost_compactions(workflows, store)
    while True:
        await restart_lost(workflows, store)
        await asyncio.sleep(EVERY_S)


async def restart_lost(workflows: SessionWorkflows, store: OpenStore) -> None:
    """Start the workflow of every session that runs, or is idle while messages wait in it.

    One that is there stays as it is.
    """
    for lost in (_running, _waiting):
        for session in await store.aread(lost):
            await workflows.start(session)


async def close_lost_compactions(workflows: SessionWorkflows, store: OpenStore) -> None:
    """Idle sessions have no workflow to miss, but one lost in a compaction left a run open.

    Looked for at the start only: while we live, whoever asked for it asks again.
    """
    for session in await store.aread(_compacting):
        await workflows.start(session)
