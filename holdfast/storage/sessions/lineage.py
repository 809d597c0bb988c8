"""Lineage: what a session inherits level by level, where it comes from, what came of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sqlalchemy import CTE, ColumnElement, bindparam, literal, or_, select
from typing_extensions import TypedDict

from holdfast.storage.database.engine import Db
from holdfast.storage.database.rows import KEY, table
from holdfast.storage.database.tables import SessionRow, Supersession
from holdfast.storage.database.tables_history import Derivation

_sessions, _derivations, _supersessions = table(SessionRow), table(Derivation), table(Supersession)
LEVELS_MAX = DEPTH_MAX = 1_000
ITEMS_MAX = 2_000
_SOURCE = select(_derivations).where(_derivations.c.target_session == bindparam(KEY))


@dataclass(frozen=True)
class Level:
    """One session of the chain, with how much of it is seen."""

    session_id: str
    cutoff_seq: int | None  # None: everything
    cutoff_change: int | None  # None: as it is now


class CauseShown(TypedDict):
    """Why a message no longer counts."""

    cause: str
    cause_id: str


def levels(db: Db, session_id: str) -> list[Level]:
    """The session itself first, then its source and that one's, as far as it reads them."""
    chain = [Level(session_id, None, None)]
    seq: int | None = None
    while len(chain) <= LEVELS_MAX:
        edge = db.connection().execute(_SOURCE, {KEY: chain[-1].session_id}).first()
        if edge is None:
            return chain
        seq = edge.cutoff_seq if seq is None else min(seq, edge.cutoff_seq)
        if seq == 0:
            # A cleared fork, or one that began before its source's first message.
            return chain
        chain.append(Level(edge.source_session, seq, edge.cutoff_change))
    return chain


def live(level: Level) -> ColumnElement[bool]:
    """The supersessions of this level that hold at its cutoff."""
    mine = _supersessions.c.session_id == level.session_id
    if level.cutoff_change is None:
        return mine & _supersessions.c.undone_change.is_(None)
    return (
        mine
        & (_supersessions.c.change <= level.cutoff_change)
        & or_(
            _supersessions.c.undone_change.is_(None),
            _supersessions.c.undone_change > level.cutoff_change,
        )
    )


def live_in(chain: list[Level]) -> ColumnElement[bool]:
    """The supersessions that hold anywhere in the chain."""
    return or_(*(live(level) for level in chain))


def superseded(db: Db, chain: list[Level]) -> dict[str, list[CauseShown]]:
    """Every superseded message that the chain sees, with its causes."""
    causes: dict[str, list[CauseShown]] = {}
    for level in chain:
        rows = select(
            _supersessions.c.message_id, _supersessions.c.cause, _supersessions.c.cause_id
        ).where(live(level))
        for row in db.connection().execute(rows.order_by(_supersessions.c.number)):
            causes.setdefault(row.message_id, []).append(
                {"cause": row.cause, "cause_id": row.cause_id}
            )
    return causes


def lineage(db: Db, session: SessionRow) -> dict[str, list[dict[str, Any]]]:
    """Ancestors, the nearest first, and descendants, level by level (H-035)."""
    up = _ancestors(session.id)
    down = _descendants(session.id)
    return {
        "ancestors": _shown(db, up, session.created_by),
        "descendants": _shown(db, down, session.created_by),
    }


def _ancestors(session_id: str) -> CTE:
    start = select(_sessions.c.parent_session_id.label("id"), literal(1).label("depth")).where(
        _sessions.c.id == session_id, _sessions.c.parent_session_id.is_not(None)
    )
    walk = start.cte("ancestors", recursive=True)
    parent = (
        select(_sessions.c.parent_session_id, walk.c.depth + 1)
        .join_from(walk, _sessions, _sessions.c.id == walk.c.id)
        .where(_sessions.c.parent_session_id.is_not(None), walk.c.depth < DEPTH_MAX)
    )
    return walk.union(parent)


def _descendants(session_id: str) -> CTE:
    start = select(_sessions.c.id.label("id"), literal(1).label("depth")).where(
        _sessions.c.parent_session_id == session_id
    )
    walk = start.cte("descendants", recursive=True)
    child = (
        select(_sessions.c.id, walk.c.depth + 1)
        .join_from(walk, _sessions, _sessions.c.parent_session_id == walk.c.id)
        .where(walk.c.depth < DEPTH_MAX)
    )
    return walk.union(child)


def _shown(db: Db, walk: CTE, operator_id: str) -> list[dict[str, Any]]:
    shown = _sessions.c
    edge = _derivations.c
    rows = (
        select(
            shown.id,
            walk.c.depth,
            shown.title,
            shown.state,
            shown.source,
            shown.created_at,
            shown.parent_session_id,
            shown.purged,
            edge.type.label("relation"),
            edge.source_head,
        )
        .join_from(walk, _sessions, shown.id == walk.c.id)
        .outerjoin(_derivations, edge.target_session == shown.id)
        .where(shown.created_by == operator_id)
        .order_by(walk.c.depth, shown.created_at, shown.id)
        .limit(ITEMS_MAX)
    )
    seen: set[str] = set()
    items = []
    for row in db.connection().execute(rows):
        if row.id not in seen:
            seen.add(row.id)
            items.append(dict(row._mapping))
    return items
