"""Why messages no longer count: rows that are added and undone, never deleted.

Every operation that changes anything takes the session's next change number, once. So a fork can
read its source as it was at a change, whatever the source does later.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from sqlalchemy import ColumnElement, func, select, update

from holdfast.domain.clock import now_ms
from holdfast.storage.database.engine import Db
from holdfast.storage.database.rows import insert_all_once, step_counter, table
from holdfast.storage.database.tables import Message, SessionRow, Supersession

CAUSES = ("rollback", "compaction", "discard", "retry")
ROWS_PER_STATEMENT = 500
_supersessions, _messages = table(Supersession), table(Message)


def supersede(
    db: Db, session_id: str, message_ids: Iterable[str], cause: str, cause_id: str
) -> int:
    """Supersede these messages for one cause; how many this cause did not hold before.

    A cause that was undone is over: what happens again, happens with an id of its own.
    """
    assert cause in CAUSES, cause
    wanted = list(dict.fromkeys(message_ids))
    known = _named_by(db, session_id, cause, cause_id)
    fresh = [message_id for message_id in wanted if message_id not in known]
    if fresh:
        change = step_counter(db, SessionRow, session_id, "change_seq")
        _insert(db, session_id, fresh, cause, cause_id, change)
    return len(fresh)


def supersede_after(db: Db, session_id: str, seq: int, cause: str, cause_id: str) -> int:
    """Supersede the session's own messages after `seq`; how many were live until now."""
    later = _messages.c.session_id == session_id, _messages.c.seq > seq
    ids = list(db.connection().execute(select(_messages.c.id).where(*later)).scalars())
    gone = _superseded_among(db, session_id, later)
    supersede(db, session_id, ids, cause, cause_id)
    return len(ids) - gone


def undo(db: Db, session_id: str, cause: str, cause_id: str) -> int:
    """Undo one cause; on how many messages it was live."""
    return undo_all(db, session_id, cause, [cause_id])


def undo_all(db: Db, session_id: str, cause: str, cause_ids: Sequence[str]) -> int:
    """`undo` for several causes as one change."""
    live = (
        (_supersessions.c.session_id == session_id)
        & (_supersessions.c.cause == cause)
        & _supersessions.c.cause_id.in_(cause_ids)
        & _supersessions.c.undone_change.is_(None)
    )
    count = db.connection().execute(select(func.count()).where(live)).scalar_one()
    if count:
        change = step_counter(db, SessionRow, session_id, "change_seq")
        db.connection().execute(
            update(_supersessions).where(live).values(undone_change=change, undone_at=now_ms())
        )
    return int(count)


def causes_after(db: Db, session_id: str, change: int, cause: str) -> list[str]:
    """The ids of causes of one kind that came after a change and still hold, oldest first."""
    rows = (
        select(_supersessions.c.cause_id, func.min(_supersessions.c.change).label("first"))
        .where(
            _supersessions.c.session_id == session_id,
            _supersessions.c.change > change,
            _supersessions.c.cause == cause,
            _supersessions.c.undone_change.is_(None),
        )
        .group_by(_supersessions.c.cause_id)
        .order_by("first")
    )
    return [row.cause_id for row in db.connection().execute(rows)]


def _named_by(db: Db, session_id: str, cause: str, cause_id: str) -> set[str]:
    rows = select(_supersessions.c.message_id).where(
        _supersessions.c.session_id == session_id,
        _supersessions.c.cause_id == cause_id,
        _supersessions.c.cause == cause,
    )
    return set(db.connection().execute(rows).scalars())


def _superseded_among(db: Db, session_id: str, where: Sequence[ColumnElement[bool]]) -> int:
    """How many of these messages are superseded already."""
    held = select(_supersessions.c.message_id).where(
        _supersessions.c.session_id == session_id, _supersessions.c.undone_change.is_(None)
    )
    count = select(func.count()).select_from(_messages).where(*where, _messages.c.id.in_(held))
    return int(db.connection().execute(count).scalar_one())


def _insert(
    db: Db, session_id: str, message_ids: Sequence[str], cause: str, cause_id: str, change: int
) -> None:
    at = now_ms()
    rows = [
        {
            "session_id": session_id,
            "message_id": message_id,
            "cause": cause,
            "cause_id": cause_id,
            "change": change,
            "created_at": at,
        }
        for message_id in message_ids
    ]
    for start in range(0, len(rows), ROWS_PER_STATEMENT):
        insert_all_once(db, Supersession, rows[start : start + ROWS_PER_STATEMENT])
