"""The audit log: append-only, hash-chained per session, written with the change it reports."""

from __future__ import annotations

from typing import Any

from sqlalchemy import bindparam, insert, select

from holdfast.domain.canonical import canonical, sha256
from holdfast.domain.clock import now_ms
from holdfast.domain.events import Event
from holdfast.domain.ids import new_id
from holdfast.storage.database.engine import Db
from holdfast.storage.database.rows import BY, KEY, by_key, made, table
from holdfast.storage.database.tables import SessionRow
from holdfast.storage.database.tables_history import EventRow
from holdfast.storage.log import feed

_sessions, _events = table(SessionRow), table(EventRow)
_STEP = (
    by_key(_sessions)
    .values(event_seq=_sessions.c.event_seq + bindparam(BY))
    .returning(_sessions.c.event_seq, _sessions.c.event_hash)
)
_HASH = by_key(_sessions)
_INSERT = insert(_events)


def append(
    db: Db,
    session_id: str,
    *events: Event,
    run_id: str | None = None,
    row: tuple[str, str] | None = None,
) -> int:
    """Append events in order; answers the last one's seq."""
    connection = db.connection()
    tip = connection.execute(_STEP, {KEY: session_id, BY: len(events)})
    last_seq, previous = tip.one()
    rows: list[dict[str, Any]] = []
    at = now_ms()
    for seq, event in enumerate(events, start=last_seq - len(events) + 1):
        record = {
            "session_id": session_id,
            "seq": seq,
            "id": new_id(),
            "kind": event.kind,
            "at": at,
            "run_id": run_id,
            "row_kind": row[0] if row else None,
            "row_id": row[1] if row else None,
            "data": event.data(),
        }
        previous = chain(previous, record)
        rows.append({**record, "hash": previous})
    connection.execute(_INSERT, rows)
    connection.execute(_HASH, {KEY: session_id, "event_hash": previous})
    feed.notify(db, session_id)
    return int(last_seq)


def chain(previous: str, record: dict[str, Any]) -> str:
    """The hash of a row that follows the row with hash `previous`."""
    return sha256(previous.encode() + canonical(record))


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
