"""A run's record says what it knows: a partial response, and no price where none is known."""

from __future__ import annotations

import pytest

from domain.ids import new_id
from storage import calls, run_views, runs
from storage.calls import Bill
from storage.opening import OpenStore
from storage.tables import Call
from tests.support.desk import Desk
from tests.support.rig import Rig, script


@pytest.mark.req("K-039", "K-041")
async def test_what_a_cancelled_run_said_is_its_response_and_marked_as_partial(rig: Rig) -> None:
    session = rig.session()
    run_id = (await rig.send(session, script({"deltas": 500, "every_ms": 20}))).run_id or ""
    await rig.streaming(session)
    await rig.cancel(session)
    run = await rig.over(run_id)
    shown = rig.store.read(lambda db: run_views.view(db, run))
    assert shown["state"] == "cancelled"
    assert shown["primary_response"]["content"] == rig.streamed(session)
    assert shown["primary_response"]["metadata"]["cancelled"]
    assert not shown["primary_response"]["superseded"]


@pytest.mark.req("K-041")
async def test_a_run_cancelled_before_its_first_word_has_no_response(rig: Rig) -> None:
    session = rig.session()
    run_id = (await rig.send(session, script({"hang_s": 60}))).run_id or ""
    await rig.cancel(session)
    assert (await rig.over(run_id)).primary_response is None


@pytest.mark.req("K-039")
def test_a_price_that_is_not_known_is_not_a_price_of_nothing(sqlite_store: OpenStore) -> None:
    desk = Desk(sqlite_store)
    session = desk.session()
    run_id = desk.begin(session)

    def cost_after(cost_usd: float | None) -> float | None:
        call = Call(id=new_id(), session_id=session, run_id=run_id)
        bill = Bill(input_tokens=1, cost_usd=cost_usd)
        sqlite_store.write(lambda db: calls.begin(db, call))
        sqlite_store.write(lambda db: calls.finish(db, call, bill))
        return sqlite_store.read(lambda db: runs.get(db, run_id)).cost_usd

    assert [cost_after(cost) for cost in (None, 0.5, None, 0.25)] == [None, 0.5, 0.5, 0.75]
