"""The audit log: append-only, hash-chained per session, written with the change it reports."""

from __future__ import annotations

from sqlalchemy import select

from holdfast.domain.clock import now_ms
from holdfast.domain.events import Event
from holdfast.domain.ids import new_id
from holdfast.storage.database.engine import Db
from holdfast.storage.database.rows import made, table
from holdfast.storage.database.tables import SessionRow
from holdfast.storage.database.tables_history import EventRow
from holdfast.storage.log import written_at_commit
from holdfast.storage.log.written_at_commit import chain

_sessions, _events = table(SessionRow), table(EventRow)


def append(
    db: Db,
    session_id: str,
    *events: Event,
    run_id: str | None = None,
    row: tuple[str, str] | None = None,
) -> None:
    """Append events in order; they get their numbers when the transaction commits."""
    at = now_ms()
    additions = written_at_commit.of_session(db, session_id)
    additions.events += [
        {
            "session_id": session_id,
            "id": new_id(),
            "kind": event.kind,
            "at": at,
            "run_id": run_id,
            "row_kind": row[0] if row else None,
            "row_id": row[1] if row else None,
            "data": event.data(),
        }
        for event in events
    ]


def after(db: Db, session_id: str, seq: int, *, limit: int) -> list[EventRow]:
    """Up to `limit` events newer than `seq`, oldest first."""
    newer = (
        select(_events)
        .where(_events.c.session_id == session_id, _events.c.seq > seq)
        .order_by(_events.c.seq)
        .limit(limit)
    )
    return [made(EventRow, row) for row in db.connection().execute(newer)]


def broken_link(db: Db, session_id: str) -> int | None:
    """The seq of the first event whose hash does not follow, or None when the chain is whole."""
    previous, expected = "", 1
    rows = select(_events).where(_events.c.session_id == session_id).order_by(_events.c.seq)
    for row in db.connection().execute(rows):
        record = {key: value for key, value in row._mapping.items() if key != "hash"}
        previous = chain(previous, record)
        if row.seq != expected or previous != row.hash:
            return int(row.seq)
        expected += 1
    tip = db.connection().execute(
        select(_sessions.c.event_seq, _sessions.c.event_hash).where(_sessions.c.id == session_id)
    )
    found = tip.first()
    if found is not None and (found.event_seq, found.event_hash) != (expected - 1, previous):
        return expected
    return None
