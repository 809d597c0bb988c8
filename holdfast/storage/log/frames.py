"""The output channel: what was streamed, kept for ten minutes or fifty megabytes per session."""

from __future__ import annotations

import json
from typing import Any

from sqlalchemy import Text, delete, func, insert, select, type_coerce, update

from holdfast.domain.clock import now_ms
from holdfast.storage.database.engine import Db
from holdfast.storage.database.rows import step_counter, table
from holdfast.storage.database.tables import SessionRow
from holdfast.storage.database.tables_history import Frame
from holdfast.storage.log import feed
from holdfast.storage.log.news import FrameText

KEEP_MS = 10 * 60 * 1000
KEEP_BYTES = 50 * 1024 * 1024
_frames, _sessions = table(Frame), table(SessionRow)
_INSERT = insert(_frames)


def append(db: Db, session_id: str, *frames: tuple[str, dict[str, Any]]) -> int:
    """Append (type, payload) pairs in order; answers the last one's seq."""
    last = step_counter(db, SessionRow, session_id, "frame_seq", len(frames))
    at = now_ms()
    db.connection().execute(
        _INSERT,
        [
            {
                "session_id": session_id,
                "seq": seq,
                "type": type_,
                "payload": payload,
                "size": len(json.dumps(payload)),
                "created_at": at,
            }
            for seq, (type_, payload) in enumerate(frames, start=last - len(frames) + 1)
        ],
    )
    feed.notify(db, session_id)
    return last


def texts_after(db: Db, session_id: str, seq: int, *, limit: int) -> list[FrameText]:
    """Up to `limit` frames newer than `seq`, oldest first; a payload is the stored text."""
    columns = (_frames.c.seq, _frames.c.type, type_coerce(_frames.c.payload, Text))
    newer = (
        select(*columns)
        .where(_frames.c.session_id == session_id, _frames.c.seq > seq)
        .order_by(_frames.c.seq)
        .limit(limit)
    )
    return [FrameText(*row) for row in db.connection().execute(newer)]


def prune(db: Db, session_id: str, *, keep_ms: int = KEEP_MS, keep_bytes: int = KEEP_BYTES) -> int:
    """Drop frames past their age or the size limit; a client behind them gets a gap."""
    floor = _floor(db, session_id, now_ms() - keep_ms, keep_bytes)
    if floor == 0:
        return 0
    connection = db.connection()
    gone = connection.execute(
        delete(_frames).where(_frames.c.session_id == session_id, _frames.c.seq <= floor)
    )
    connection.execute(
        update(_sessions)
        .where(_sessions.c.id == session_id, _sessions.c.frame_floor < floor)
        .values(frame_floor=floor)
    )
    return gone.rowcount


def sessions_to_prune(
    db: Db, *, keep_ms: int = KEEP_MS, keep_bytes: int = KEEP_BYTES, limit: int = 200
) -> list[str]:
    """Sessions that hold frames older than the limit, or more than the limit."""
    old = select(_frames.c.session_id).where(_frames.c.created_at < now_ms() - keep_ms).distinct()
    large = (
        select(_frames.c.session_id)
        .group_by(_frames.c.session_id)
        .having(func.sum(_frames.c.size) > keep_bytes)
    )
    found = {
        row.session_id for one in (old, large) for row in db.connection().execute(one.limit(limit))
    }
    return sorted(found)


def _floor(db: Db, session_id: str, before: int, keep_bytes: int) -> int:
    mine = _frames.c.session_id == session_id
    connection = db.connection()
    by_age = connection.execute(
        select(func.max(_frames.c.seq)).where(mine, _frames.c.created_at < before)
    ).scalar()
    newest_first = func.sum(_frames.c.size).over(order_by=_frames.c.seq.desc())
    sized = select(_frames.c.seq, newest_first.label("total")).where(mine).subquery()
    by_size = connection.execute(
        select(func.max(sized.c.seq)).where(sized.c.total > keep_bytes)
    ).scalar()
    return max(by_age or 0, by_size or 0)
