"""The steps that move a session, on a store alone: what they tell, measure and log."""

from __future__ import annotations

import pytest
from sqlalchemy import text
from structlog.testing import capture_logs
from temporalio.exceptions import ApplicationError

from holdfast.domain.clock import now_ms
from holdfast.storage.database.opening import OpenStore
from holdfast.storage.database.rows import change
from holdfast.storage.database.tables import Operator, Run, SessionRow
from holdfast.storage.sessions import sessions
from tests.support.session_bench import SessionBench

EARLIER_MS = 90_000


@pytest.fixture
def bench(sqlite_store: OpenStore) -> SessionBench:
    return SessionBench(sqlite_store)


@pytest.mark.req("K-131", "K-032")
async def test_the_end_tells_how_many_runs_there_were_and_how_long_it_lived(
    bench: SessionBench,
) -> None:
    session = bench.library.session()
    born = now_ms() - EARLIER_MS
    bench.store.write(lambda db: change(db, SessionRow, session, created_at=born))
    bench.library.run(session)
    bench.library.run(session)
    await bench.end(session)
    (ended,) = bench.told(session, "session.ended")
    ended_at = bench.library.row(session).ended_at
    assert ended_at is not None
    assert ended_at >= born + EARLIER_MS
    assert ended == {
        "session_id": session,
        "user_id": bench.operator,
        "run_count": 2,
        "duration": ended_at - born,
        "reason": "operator",
    }


@pytest.mark.req("K-131", "K-026", "K-028", "K-031", "K-032", "K-033")
async def test_every_change_of_state_tells_where_it_came_from_and_why(bench: SessionBench) -> None:
    session, damaged = bench.library.session(), bench.library.session()
    run = bench.library.begin(session)
    bench.library.pause(session)
    bench.library.resume(session)
    await bench.finish(session, run)
    await bench.end(session)
    assert bench.moves(session) == [
        ("idle", "running", "message"),
        ("running", "paused", "checkpoint.operator"),
        ("paused", "running", "checkpoint.resume"),
        ("running", "idle", "run.done"),
        ("idle", "ended", "end"),
    ]
    bench.library.begin(damaged)
    await bench.fail(damaged)
    assert bench.moves(damaged)[-1] == ("running", "failed", "failure")


@pytest.mark.req("K-039", "K-132")
async def test_a_run_is_measured_from_its_start_to_its_end(bench: SessionBench) -> None:
    session = bench.library.session()
    run = bench.library.begin(session)
    began = now_ms() - EARLIER_MS
    used = {"started_at": began, "created_at": began - 1000, "tokens_in": 3, "tokens_out": 5}
    bench.store.write(lambda db: change(db, Run, run, **used))
    await bench.finish(session, run)
    row = bench.run_row(run)
    assert row.completed_at is not None
    assert row.completed_at >= began + EARLIER_MS
    assert row.duration_ms == row.completed_at - began
    assert bench.told(session, "run.completed") == [
        {
            "run_id": run,
            "state": "done",
            "duration_ms": row.duration_ms,
            "tokens": {"input": 3, "output": 5},
        }
    ]


@pytest.mark.req("K-132")
async def test_a_run_is_told_when_it_is_made_and_when_it_is_cancelled(bench: SessionBench) -> None:
    session = bench.library.session()
    run = bench.library.begin(session, "x" * 300)
    assert bench.told(session, "run.created") == [
        {"run_id": run, "session_id": session, "message_preview": "x" * 100}
    ]
    await bench.finish(session, run, "cancelled")
    assert bench.told(session, "run.cancelled") == [
        {"run_id": run, "session_id": session, "user_id": bench.operator}
    ]
    assert [one["state"] for one in bench.told(session, "run.completed")] == ["cancelled"]


@pytest.mark.req("K-015", "K-030", "K-037")
async def test_the_limit_of_an_operator_counts_too(bench: SessionBench) -> None:
    first, second = bench.library.session(), bench.library.session()
    bench.store.write(lambda db: change(db, Operator, bench.operator, running_limit=1))
    bench.library.begin(first)
    run = bench.library.begin(second, "wait for it")
    row = bench.library.row(second)
    assert (row.state, row.active_run) == ("queued", run)
    assert bench.run_row(run).state == "pending"
    assert bench.library.texts(second) == ["wait for it"]
    (queued,) = bench.told(second, "session.queued")
    assert (queued["reason"], queued["running_count"], queued["limit"]) == ("per_operator", 1, 1)


@pytest.mark.req("K-012", "K-033")
async def test_a_failure_is_kept_and_closes_the_run_with_it(bench: SessionBench) -> None:
    session = bench.library.session()
    run = bench.library.begin(session)
    await bench.fail(session)
    failure = {"code": "store_damaged", "message": "a blob is missing"}
    row = bench.store.read(lambda db: sessions.get(db, session))
    assert (row.state, row.failure, row.active_run) == ("failed", failure, None)
    assert (bench.run_row(run).state, bench.run_row(run).error) == ("failed", failure)
    assert bench.told(session, "session.failed") == [{"session_id": session, "error": failure}]
    counts = [one["running"] for one in bench.told(session, "sessions.running_count")]
    assert counts == [1, 0]


@pytest.mark.req("K-139")
async def test_a_write_that_meets_damage_is_logged_as_critical(bench: SessionBench) -> None:
    session = bench.library.session()
    broken = (
        "CREATE TRIGGER broken BEFORE INSERT ON events BEGIN"
        " SELECT RAISE(ABORT, 'database disk image is malformed'); END"
    )
    bench.store.write(lambda db: db.connection().execute(text(broken)))
    with capture_logs() as logged, pytest.raises(ApplicationError) as met:
        await bench.end(session)
    assert (met.value.type, met.value.non_retryable) == ("store_damaged", True)
    (line,) = [one for one in logged if one["event"] == "store.damaged"]
    assert (line["log_level"], line["step"]) == ("critical", "end_session")
    assert line["session_id"] == session
    assert "malformed" in line["error"]
