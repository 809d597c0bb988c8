"""How long `holdfast doctor --deep` takes on a clean store of 100k messages."""

from __future__ import annotations

import tempfile
from pathlib import Path

from sqlalchemy import insert, update

from holdfast.domain.clock import now_ms
from holdfast.domain.events import MessageAdded
from holdfast.domain.ids import new_id
from holdfast.storage.database.engine import Db
from holdfast.storage.database.opening import OpenStore, open_store
from holdfast.storage.database.rows import table
from holdfast.storage.database.tables import Message, SessionRow
from holdfast.storage.log import events
from holdfast.storage.upkeep import consistency
from tests.bench.rounds import TINY, middle, noise, timed_ms
from tests.bench.row import Row
from tests.support.workflow_double import WorkflowDouble

MESSAGES = 1_000 if TINY else 100_000
SESSIONS = 5 if TINY else 100
RUNS = 10
REPEATS = 5


def measure() -> list[Row]:
    """Quick and deep, on sessions with runs, heads, checkpoints, compactions and forks."""
    with tempfile.TemporaryDirectory(prefix="hf-bench-") as folder:
        store = open_store(None, Path(folder))
        try:
            _fill(store)
            return [_row(store, "deep", "< 60 s"), _row(store, "quick", "")]
        finally:
            store.close()


def _fill(store: OpenStore) -> None:
    workflow = WorkflowDouble(store)
    for number in range(SESSIONS):
        session_id = workflow.session()
        # A run is two messages.
        said = MESSAGES // SESSIONS - 2 * RUNS
        store.write(lambda db, key=session_id, said=said: _say(db, key, said))  # type: ignore[misc]
        for _ in range(RUNS - 1):
            workflow.run(session_id)
        run_id = workflow.begin(session_id)
        workflow.pause(session_id)
        workflow.resume(session_id)
        workflow.finish(run_id)
        if number % 10 == 0:
            workflow.compact(session_id, [workflow.seen(session_id)[0][0]])
            workflow.fork(session_id)


def _say(db: Db, session_id: str, count: int) -> None:
    """Messages as `messages.append` leaves them behind, many at once."""
    rows = [
        Message(
            id=new_id(), session_id=session_id, seq=seq, role="operator", content=f"message {seq}",
            created_at=now_ms(),
        ).model_dump(exclude={"number"})
        for seq in range(1, count + 1)
    ]  # fmt: skip
    db.connection().execute(insert(table(Message)), rows)
    sessions = table(SessionRow)
    counted = {"message_seq": count, "message_count": count}
    db.connection().execute(update(sessions).where(sessions.c.id == session_id).values(counted))
    added = [MessageAdded(message_id=row["id"], role="operator", agent_path="") for row in rows]
    events.append(db, session_id, *added)


def _row(store: OpenStore, mode: str, goal: str) -> Row:
    seconds = []
    for _ in range(REPEATS):
        seconds.append(timed_ms(lambda: _check(store, mode)) / 1000)
    name = f"consistency check, {mode}, {MESSAGES:,} messages"
    return Row(name, middle(seconds), "s", None, None, None, goal, noise(seconds))


def _check(store: OpenStore, mode: str) -> None:
    report = consistency.check(store, mode)
    assert report.issue_count == 0, report.issues[:3]
