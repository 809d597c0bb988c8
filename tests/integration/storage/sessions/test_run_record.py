"""A run's record says what it knows: a partial response, and no price where none is known."""

from __future__ import annotations

import pytest

from holdfast.domain.ids import new_id
from holdfast.storage.database.opening import OpenStore
from holdfast.storage.database.tables import Call
from holdfast.storage.sessions import calls, run_views, runs
from holdfast.storage.sessions.calls import Bill
from tests.support.local_worker import LocalWorker, script
from tests.support.workflow_double import WorkflowDouble


@pytest.mark.req("K-039", "K-041")
async def test_what_a_cancelled_run_said_is_its_response_and_marked_as_partial(
    worker: LocalWorker,
) -> None:
    session = worker.session()
    run_id = (await worker.send(session, script({"deltas": 500, "every_ms": 20}))).run_id or ""
    await worker.streaming(session)
    await worker.cancel(session)
    run = await worker.over(run_id)
    shown = worker.store.read(lambda db: run_views.view(db, run))
    assert shown["state"] == "cancelled"
    response = shown["primary_response"]
    assert response is not None
    assert response["content"] == worker.streamed(session)
    assert response["metadata"]["cancelled"]
    assert not response["superseded"]


@pytest.mark.req("K-041")
async def test_a_run_cancelled_before_its_first_word_has_no_response(worker: LocalWorker) -> None:
    session = worker.session()
    run_id = (await worker.send(session, script({"hang_s": 60}))).run_id or ""
    await worker.cancel(session)
    assert (await worker.over(run_id)).primary_response is None


@pytest.mark.req("K-039")
def test_a_price_that_is_not_known_is_not_a_price_of_nothing(sqlite_store: OpenStore) -> None:
    workflow = WorkflowDouble(sqlite_store)
    session = workflow.session()
    run_id = workflow.begin(session)

    def cost_after(cost_usd: float | None) -> float | None:
        call = Call(id=new_id(), session_id=session, run_id=run_id)
        bill = Bill(input_tokens=1, cost_usd=cost_usd)
        sqlite_store.write(lambda db: calls.begin(db, call))
        sqlite_store.write(lambda db: calls.finish(db, call, bill))
        return sqlite_store.read(lambda db: runs.get(db, run_id)).cost_usd

    assert [cost_after(cost) for cost in (None, 0.5, None, 0.25)] == [None, 0.5, 0.5, 0.75]
