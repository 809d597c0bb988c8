"""Two sessions side by side: where they last agreed, and what each did since."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sqlalchemy import func, select

from holdfast.storage.database.engine import Db
from holdfast.storage.database.rows import table
from holdfast.storage.database.tables_history import Checkpoint, Derivation, Head
from holdfast.storage.moves import heads
from holdfast.storage.sessions import messages
from holdfast.storage.sessions.lineage import Level, levels
from holdfast.storage.sessions.message_views import message_json

MESSAGES_SHOWN = 200
_derivations, _heads = table(Derivation), table(Head)
_checkpoints = table(Checkpoint)


@dataclass(frozen=True)
class Common:
    """The newest point that both sessions share."""

    session_id: str
    message_seq: int
    head_id: str | None


def compare(db: Db, a: str, b: str, *, limit: int = MESSAGES_SHOWN) -> dict[str, Any]:
    """The common head of two sessions and what each of them did after it."""
    common = common_point(db, a, b)
    seq = 0 if common is None else common.message_seq
    return {
        "common": None if common is None else _common_json(db, common),
        "a": _since(db, a, seq, limit),
        "b": _since(db, b, seq, limit),
    }


def common_point(db: Db, a: str, b: str) -> Common | None:
    """Where the two chains of sources meet, or None when they never do."""
    theirs = {level.session_id: level for level in levels(db, b)}
    mine = levels(db, a)
    for index, level in enumerate(mine):
        other = theirs.get(level.session_id)
        if other is None:
            continue
        cutoffs = [end.cutoff_seq for end in (level, other) if end.cutoff_seq is not None]
        seq = min(cutoffs, default=messages.last_seq(db, level.session_id))
        return Common(level.session_id, seq, _head_at(db, level.session_id, seq, mine[:index]))
    return None


def _head_at(db: Db, session_id: str, seq: int, below: list[Level]) -> str | None:
    """The head that the edge itself names, else the newest one that both can have seen."""
    if below:
        edge = select(_derivations.c.source_head).where(
            _derivations.c.target_session == below[-1].session_id,
            _derivations.c.cutoff_seq == seq,
        )
        named: str | None = db.connection().execute(edge).scalar()
        if named is not None:
            return named
    newest = (
        select(_heads.c.id)
        .where(_heads.c.session_id == session_id, _heads.c.message_seq <= seq)
        .order_by(_heads.c.number.desc())
        .limit(1)
    )
    found: str | None = db.connection().execute(newest).scalar()
    return found


def _common_json(db: Db, common: Common) -> dict[str, Any]:
    head = None if common.head_id is None else heads.find(db, common.head_id)
    return {
        "session_id": common.session_id,
        "head_id": common.head_id,
        "message_seq": common.message_seq,
        "head": None if head is None else heads.head_json(head, current=None),
    }


def _since(db: Db, session_id: str, seq: int, limit: int) -> dict[str, Any]:
    page = messages.page(db, session_id, after_seq=seq, limit=limit + 1, include_superseded=True)
    shown = page[:limit]
    run_ids = {message.run_id for message, _ in shown if message.run_id}
    own_checkpoints = select(func.count()).where(
        _checkpoints.c.session_id == session_id, _checkpoints.c.message_seq >= seq
    )
    return {
        "session_id": session_id,
        "messages": [message_json(message, causes) for message, causes in shown],
        "truncated": len(page) > limit,
        "runs": sorted(run_ids),
        "checkpoints": db.connection().execute(own_checkpoints).scalar_one(),
    }
