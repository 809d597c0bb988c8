"""Sessions as the wire shows them: one by one, and as pages that cost the same at any size."""

from __future__ import annotations

import base64
import binascii
import json
from dataclasses import dataclass
from typing import Any

from sqlalchemy import ColumnElement, or_, select

from domain.errors import ValidationFailed
from domain.lifecycle import State, allowed_actions
from storage.engine import Db
from storage.leases import attach_lease, held
from storage.rows import table
from storage.tables import Project, ProjectFileRow, SessionRow

PREVIEW_CHARS = 63
QUEUED_REASON = "concurrency_limit"
_sessions, _projects, _files = table(SessionRow), table(Project), table(ProjectFileRow)
_USAGE = (
    "input_tokens",
    "output_tokens",
    "cache_read_tokens",
    "cache_write_tokens",
    "reasoning_tokens",
    "api_calls",
    "estimated_cost_usd",
    "actual_cost_usd",
    "cost_status",
    "cost_source",
)
_SHOWN = (
    "id",
    "project_id",
    "created_by",
    "state",
    "title",
    "source",
    "mode",
    "created_at",
    "updated_at",
    "ended_at",
    "end_reason",
    "forked_from",
    "parent_session_id",
    "model_override",
    "bound_issue",
    "dsl_hash",
    "current_head",
    "active_run",
    "current_checkpoint",
    "message_count",
    "tool_call_count",
    "run_count",
    "failure",
    "archived",
    "pinned",
    "working_directory",
    "last_active",
)
# Project files are immutable by hash, so what one says about its cage never changes.
_cages: dict[str, str] = {}
_CAGES_MAX = 1000


@dataclass(frozen=True)
class Filter:
    """Which sessions a list shows."""

    operator_id: str
    project_id: str | None = None
    state: str | None = None
    source: str | None = None
    q: str | None = None
    archived: bool = False


def view(db: Db, row: SessionRow) -> dict[str, Any]:
    """One session, as API.md section 3 has it."""
    return views(db, [row])[0]


def views(db: Db, rows: list[SessionRow]) -> list[dict[str, Any]]:
    """Several sessions with three queries in all."""
    attached = held(db, [attach_lease(row.id) for row in rows])
    current = _current_hashes(db, {row.project_id for row in rows})
    cages = _cages_of(db, {row.dsl_hash for row in rows})
    return [
        _view(
            row,
            attached=attach_lease(row.id) in attached,
            stale=row.dsl_hash != current.get(row.project_id, row.dsl_hash),
            cage=cages.get(row.dsl_hash, "disabled"),
        )
        for row in rows
    ]


def page(
    db: Db, wanted: Filter, *, limit: int, cursor: str | None = None
) -> tuple[list[dict[str, Any]], str | None]:
    """Sessions by newest activity, and where the next page begins."""
    chosen = select(_sessions).where(*_conditions(wanted))
    if cursor is not None:
        at, session_id = read_cursor(cursor)
        chosen = chosen.where(
            (_sessions.c.last_active < at)
            | ((_sessions.c.last_active == at) & (_sessions.c.id < session_id))
        )
    chosen = chosen.order_by(_sessions.c.last_active.desc(), _sessions.c.id.desc())
    found = db.connection().execute(chosen.limit(limit + 1))
    # Rows as they come: making a model of each would cost three times the rest.
    rows: list[Any] = list(found)
    more = len(rows) > limit
    rows = rows[:limit]
    following = make_cursor(rows[-1].last_active, rows[-1].id) if more else None
    return views(db, rows), following


def make_cursor(at: int, key: str) -> str:
    """An opaque place in a list."""
    return base64.urlsafe_b64encode(json.dumps([at, key]).encode()).decode().rstrip("=")


def read_cursor(cursor: str) -> tuple[int, str]:
    """The place that `make_cursor` wrote, or ValidationFailed."""
    try:
        padded = cursor + "=" * (-len(cursor) % 4)
        at, key = json.loads(base64.urlsafe_b64decode(padded.encode("ascii")))
        if not isinstance(key, str) or not 0 <= int(at) < 2**62:
            raise ValueError(cursor)
    except (ValueError, TypeError, binascii.Error, RecursionError):
        raise ValidationFailed("cursor is not one that this server gave out") from None
    return int(at), key


def _conditions(wanted: Filter) -> list[ColumnElement[bool]]:
    conditions = [
        _sessions.c.created_by == wanted.operator_id,
        _sessions.c.archived.is_(wanted.archived),
        _sessions.c.purged.is_(False),
    ]
    if wanted.project_id is not None:
        conditions.append(_sessions.c.project_id == wanted.project_id)
    if wanted.state is not None:
        conditions.append(_sessions.c.state == wanted.state)
    if wanted.source is not None:
        conditions.append(_sessions.c.source == wanted.source)
    if wanted.q:
        conditions.append(
            or_(
                _sessions.c.title.icontains(wanted.q, autoescape=True),
                _sessions.c.preview.icontains(wanted.q, autoescape=True),
                _sessions.c.id == wanted.q.upper(),
            )
        )
    return conditions


def _view(row: SessionRow, *, attached: bool, stale: bool, cage: str) -> dict[str, Any]:
    state = State(row.state)
    shown: dict[str, Any] = {name: getattr(row, name) for name in _SHOWN}
    shown |= {
        "preview": row.preview[:PREVIEW_CHARS],
        "dsl_stale": stale,
        "attached": attached,
        "allowed_actions": _actions(row, state),
        "usage": {name: getattr(row, name) for name in _USAGE},
        "cage": cage,
    }
    if state is State.QUEUED:
        shown |= {"queued": True, "reason": QUEUED_REASON}
    return shown


def _actions(row: SessionRow, state: State) -> list[str]:
    cleanly = row.end_reason != "failed" and row.failure is None
    actions = allowed_actions(state, cleanly_ended=cleanly)
    if row.archived:
        return ["unarchive" if action == "archive" else action for action in actions]
    return actions


def _current_hashes(db: Db, project_ids: set[str]) -> dict[str, str]:
    rows = select(_projects.c.id, _projects.c.dsl_hash).where(_projects.c.id.in_(project_ids))
    return {row.id: row.dsl_hash for row in db.connection().execute(rows)}


def _cages_of(db: Db, hashes: set[str]) -> dict[str, str]:
    missing = hashes - _cages.keys()
    if missing:
        if len(_cages) > _CAGES_MAX:
            _cages.clear()
            missing = hashes
        rows = select(_files.c.hash, _files.c.content).where(_files.c.hash.in_(missing))
        for row in db.connection().execute(rows):
            cage = (row.content.get("primary") or {}).get("cage", "disabled")
            _cages[row.hash] = "disabled" if cage == "disabled" else "enabled"
    return _cages
