"""Lineage: where a session comes from and what came of it, by one recursive query each."""

from __future__ import annotations

from typing import Any

from sqlalchemy import CTE, literal, select

from holdfast.storage.database.engine import Db
from holdfast.storage.database.rows import table
from holdfast.storage.database.tables import SessionRow
from holdfast.storage.database.tables_history import Derivation

DEPTH_MAX = 1_000
ITEMS_MAX = 2_000
_sessions, _derivations = table(SessionRow), table(Derivation)


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
