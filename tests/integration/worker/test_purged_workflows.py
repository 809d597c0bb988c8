"""A purged session's workflow ends, and nothing of it stays in Temporal."""

from __future__ import annotations

import asyncio
from functools import partial

import pytest
from temporalio.service import RPCError, RPCStatusCode

from holdfast.storage.sessions import purged_workflows, sessions
from holdfast.storage.transfer.export_document import document
from holdfast.storage.upkeep import removal
from tests.support.imports import import_document
from tests.support.local_worker import LocalWorker
from tests.support.servers.terminal_hosts import eventually
from worker.purged_workflows import end_purged


async def is_known(worker: LocalWorker, session_id: str) -> bool:
    """Whether Temporal has anything under this id."""
    try:
        await worker.handle(session_id).describe()
    except RPCError as error:
        if error.status is not RPCStatusCode.NOT_FOUND:
            raise
        return False
    return True


async def gone(worker: LocalWorker, session_id: str) -> None:
    """Temporal deletes in its own time: it notes how far its queues are every 30 s, then."""

    async def is_gone() -> bool:
        return not await is_known(worker, session_id)

    await eventually(is_gone, "the workflow is gone")


@pytest.mark.req("H-042")
async def test_the_workflow_of_a_purged_session_is_ended_and_deleted(worker: LocalWorker) -> None:
    idle, ended, kept = (worker.session() for _ in range(3))
    for session in (idle, ended, kept):
        await worker.run(session, "hello")
        await worker.state(session, "idle")
    await worker.plain(ended, "end")
    for session in (idle, ended):
        await asyncio.to_thread(removal.purge, worker.store, session)
        assert await is_known(worker, session)
    assert await end_purged(worker.client, worker.store) == 2
    await gone(worker, idle)
    await gone(worker, ended)
    assert await end_purged(worker.client, worker.store) == 0
    assert (await worker.run(kept, "still here")).state == "done"


@pytest.mark.req("H-042")
async def test_a_session_that_is_back_keeps_its_workflow(worker: LocalWorker) -> None:
    session, never_began = worker.session(), worker.session()
    await worker.run(session, "hello")
    await worker.state(session, "idle")
    exported = worker.store.read(
        lambda db: document(db, worker.store.blobs, sessions.get(db, session))
    )
    for one in (session, never_began):
        await asyncio.to_thread(removal.purge, worker.store, one)
    await asyncio.to_thread(import_document, worker.store, worker.operator_id, exported)
    assert worker.store.read(partial(purged_workflows.waiting, limit=9)) == [never_began]
    assert await end_purged(worker.client, worker.store) == 1
    assert await is_known(worker, session)
    assert (await worker.run(session, "again")).state == "done"
