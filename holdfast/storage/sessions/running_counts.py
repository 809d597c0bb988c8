"""How many sessions run, as one operator may know it, and every change of that."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sqlalchemy import select

from holdfast.domain.control_events import AttentionCleared, AttentionRequired
from holdfast.domain.events import RunningCount
from holdfast.storage.database.engine import Db
from holdfast.storage.database.rows import table
from holdfast.storage.database.tables import SessionRow
from holdfast.storage.database.tables_history import EventRow
from holdfast.storage.projects import projects
from holdfast.storage.sessions import sessions

CHANGES_MAX = 1000
_events, _sessions = table(EventRow), table(SessionRow)


KINDS = (RunningCount.kind, AttentionRequired.kind, AttentionCleared.kind)


@dataclass(frozen=True)
class Change:
    """A run began or ended somewhere, or a session needs something else from a person."""

    id: str
    kind: str
    data: dict[str, Any]


def counts(db: Db, operator_id: str) -> dict[str, Any]:
    """Running sessions and limits now, by project and for the operator."""
    running, limit = sessions.operator_slots(db, operator_id)
    own = projects.page(db, operator_id, limit=projects.PROJECTS_PER_PAGE_MAX)
    by_project = projects.running_counts(db, [project.id for project in own])
    return {
        "total": running,
        "per_project": {
            project.id: {
                "running": by_project.get(project.id, 0),
                "limit": project.running_limit,
            }
            for project in own
        },
        "per_operator": {operator_id: {"running": running, "limit": limit}},
    }


def changes(db: Db, operator_id: str, since: int) -> list[Change]:
    """What changed in sessions of this operator from `since` (ms) on, oldest first."""
    rows = (
        select(_events.c.id, _events.c.kind, _events.c.data)
        .join(_sessions, _sessions.c.id == _events.c.session_id)
        .where(
            _events.c.kind.in_(KINDS),
            _events.c.at >= since,
            _sessions.c.created_by == operator_id,
        )
        .order_by(_events.c.at, _events.c.id)
        .limit(CHANGES_MAX)
    )
    return [Change(row.id, row.kind, row.data) for row in db.connection().execute(rows)]


def apply(known: dict[str, Any], operator_id: str, change: Change) -> None:
    """Bring `counts` forward by one change."""
    project = known["per_project"].setdefault(change.data["project_id"], {})
    project |= {"running": change.data["running"], "limit": change.data["limit"]}
    known["per_operator"][operator_id]["running"] = change.data["operator_running"]
    known["total"] = change.data["operator_running"]
