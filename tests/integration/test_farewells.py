"""A purged session's workflow ends, and nothing of it stays in Temporal."""

from __future__ import annotations

import asyncio
from functools import partial

import pytest
from temporalio.service import RPCError, RPCStatusCode

from storage import farewells, removal, sessions
from storage.export_document import document
from storage.import_document import import_document
from tests.support.rig import Rig
from tests.support.terminal_hosts import eventually
from worker.farewells import end_purged


async def is_known(rig: Rig, session_id: str) -> bool:
    """Whether Temporal has anything under this id."""
    try:
        await rig.handle(session_id).describe()
    except RPCError as error:
        if error.status is not RPCStatusCode.NOT_FOUND:
            raise
        return False
    return True


async def gone(rig: Rig, session_id: str) -> None:
    """Temporal deletes in its own time: it notes how far its queues are every 30 s, then."""

    async def is_gone() -> bool:
        return not await is_known(rig, session_id)

    await eventually(is_gone, "the workflow is gone")


@pytest.mark.req("H-042")
async def test_the_workflow_of_a_purged_session_is_ended_and_deleted(rig: Rig) -> None:
    idle, ended, kept = (rig.session() for _ in range(3))
    for session in (idle, ended, kept):
        await rig.run(session, "hello")
        await rig.state(session, "idle")
    await rig.plain(ended, "end")
    for session in (idle, ended):
        await asyncio.to_thread(removal.purge, rig.store, session)
        assert await is_known(rig, session)
    assert await end_purged(rig.client, rig.store) == 2
    await gone(rig, idle)
    await gone(rig, ended)
    assert await end_purged(rig.client, rig.store) == 0
    assert (await rig.run(kept, "still here")).state == "done"


@pytest.mark.req("H-042")
async def test_a_session_that_is_back_keeps_its_workflow(rig: Rig) -> None:
    session, never_began = rig.session(), rig.session()
    await rig.run(session, "hello")
    await rig.state(session, "idle")
    exported = rig.store.read(lambda db: document(db, rig.store.blobs, sessions.get(db, session)))
    for one in (session, never_began):
        await asyncio.to_thread(removal.purge, rig.store, one)
    await asyncio.to_thread(import_document, rig.store, rig.operator_id, exported)
    assert rig.store.read(partial(farewells.waiting, limit=9)) == [never_began]
    assert await end_purged(rig.client, rig.store) == 1
    assert await is_known(rig, session)
    assert (await rig.run(session, "again")).state == "done"
