"""What a transaction adds to the logs of its sessions, written once, just before it commits.

A transaction often says several things of one session: they take one number range, one insert and
one link of the hash chain's end, in the same transaction as the change that they report. Who reads
a log, its counters or its hash inside the transaction writes first: `write`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import bindparam, event, insert

from holdfast.domain.canonical import canonical, sha256
from holdfast.storage.database.engine import Db
from holdfast.storage.database.rows import KEY, by_key, table
from holdfast.storage.database.tables import SessionRow
from holdfast.storage.database.tables_history import EventRow, Frame
from holdfast.storage.log import feed

_sessions = table(SessionRow)
_PLACE = "log"
_STEP = (
    by_key(_sessions)
    .values(
        event_seq=_sessions.c.event_seq + bindparam("events"),
        frame_seq=_sessions.c.frame_seq + bindparam("frames"),
    )
    .returning(_sessions.c.event_seq, _sessions.c.event_hash, _sessions.c.frame_seq)
)
_HASH = by_key(_sessions)
_INSERT_EVENTS, _INSERT_FRAMES = insert(table(EventRow)), insert(table(Frame))


@dataclass
class Additions:
    """What one session's logs get, in order, still without numbers."""

    events: list[dict[str, Any]] = field(default_factory=list)
    frames: list[dict[str, Any]] = field(default_factory=list)


def of_session(db: Db, session_id: str) -> Additions:
    """Where this transaction gathers what it adds to a session's logs."""
    assert not db.in_nested_transaction(), "a savepoint that is given up would not take this back"
    db.connection()  # the transaction has begun, so that its commit is one
    waiting: dict[str, Additions] = db.info.setdefault(_PLACE, {})
    return waiting.setdefault(session_id, Additions())


def write(db: Db) -> None:
    """Number and store all that was gathered, in the order in which sessions were first named."""
    waiting: dict[str, Additions] = db.info.pop(_PLACE, {})
    for session_id, additions in waiting.items():
        _write(db, session_id, additions)


def chain(previous: str, record: dict[str, Any]) -> str:
    """The hash of a row that follows the row with hash `previous`."""
    return sha256(previous.encode() + canonical(record))


def _write(db: Db, session_id: str, additions: Additions) -> None:
    events, frames = additions.events, additions.frames
    connection = db.connection()
    counts = {KEY: session_id, "events": len(events), "frames": len(frames)}
    event_seq, previous, frame_seq = connection.execute(_STEP, counts).one()
    if frames:
        _number(frames, frame_seq)
        connection.execute(_INSERT_FRAMES, frames)
    if events:
        _number(events, event_seq)
        for record in events:
            record["hash"] = previous = chain(previous, record)
        connection.execute(_INSERT_EVENTS, events)
        connection.execute(_HASH, {KEY: session_id, "event_hash": previous})
    feed.notify(db, session_id)


def _number(records: list[dict[str, Any]], last: int) -> None:
    for seq, record in enumerate(records, start=last - len(records) + 1):
        record["seq"] = seq


@event.listens_for(Db, "before_commit")
def _before_commit(db: Db) -> None:
    if not db.in_nested_transaction():
        write(db)
