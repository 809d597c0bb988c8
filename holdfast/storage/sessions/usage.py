"""What models used and cost: by model, by day, by project, and the sessions that used most."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from sqlalchemy import ColumnElement, Select, func, literal_column, select

from holdfast.storage.database.engine import Db
from holdfast.storage.database.rows import table
from holdfast.storage.database.tables import Call, Project, SessionRow

TOP_SESSIONS = 10
DAYS_MAX = 366
GROUPS_MAX = 200
DAY_MS = 86_400_000
_calls, _sessions, _projects = table(Call), table(SessionRow), table(Project)
_TOKENS = (
    "input_tokens",
    "output_tokens",
    "cache_read_tokens",
    "cache_write_tokens",
    "reasoning_tokens",
)


def usage(
    db: Db,
    operator_id: str,
    *,
    since: int | None = None,
    until: int | None = None,
    project_id: str | None = None,
) -> dict[str, Any]:
    """The operator's usage. Estimated and actual cost stand side by side, never added up."""
    mine = _mine(operator_id, since, until, project_id)
    return {
        "total": _total(db, mine),
        "by_model": _by_model(db, mine),
        "by_day": _by_day(db, mine),
        "by_project": _by_project(db, mine),
        "top_sessions": _top_sessions(db, operator_id, project_id),
        "since": since,
        "until": until,
    }


def _mine(
    operator_id: str, since: int | None, until: int | None, project_id: str | None
) -> list[ColumnElement[bool]]:
    conditions = [_sessions.c.created_by == operator_id]
    if since is not None:
        conditions.append(_calls.c.created_at >= since)
    if until is not None:
        conditions.append(_calls.c.created_at <= until)
    if project_id is not None:
        conditions.append(_sessions.c.project_id == project_id)
    return conditions


def _sums() -> list[Any]:
    cost, actual = _calls.c.cost_usd, _calls.c.cost_status == "actual"
    sums = [func.coalesce(func.sum(_calls.c[name]), 0).label(name) for name in _TOKENS]
    return [
        func.count(_calls.c.id).label("calls"),
        func.count(func.distinct(_calls.c.session_id)).label("sessions"),
        *sums,
        func.sum(cost).filter(~actual | _calls.c.cost_status.is_(None)).label("estimated_cost_usd"),
        func.sum(cost).filter(actual).label("actual_cost_usd"),
        func.count(_calls.c.id).filter(cost.is_(None)).label("calls_without_cost"),
        func.max(_calls.c.cost_source).label("cost_source"),
    ]


def _grouped(mine: list[ColumnElement[bool]], *groups: Any) -> Select[Any]:
    joined = select(*groups, *_sums()).join_from(
        _calls, _sessions, _sessions.c.id == _calls.c.session_id
    )
    return joined.where(*mine)


def _total(db: Db, mine: list[ColumnElement[bool]]) -> dict[str, Any]:
    return _shown(db.connection().execute(_grouped(mine)).one())


def _by_model(db: Db, mine: list[ColumnElement[bool]]) -> list[dict[str, Any]]:
    columns = (_calls.c.model, _calls.c.provider)
    rows = _grouped(mine, *columns).group_by(*columns)
    spent = func.sum(_calls.c.input_tokens + _calls.c.output_tokens)
    rows = rows.order_by(spent.desc(), _calls.c.model).limit(GROUPS_MAX)
    return [_shown(row) for row in db.connection().execute(rows)]


def _by_day(db: Db, mine: list[ColumnElement[bool]]) -> list[dict[str, Any]]:
    """Days of UTC, newest first."""
    number = (_calls.c.created_at - _calls.c.created_at % DAY_MS).label("day_at")
    rows = _grouped(mine, number).group_by(literal_column("day_at"))
    rows = rows.order_by(literal_column("day_at").desc()).limit(DAYS_MAX)
    return [{"day": _day(row.day_at), **_shown(row)} for row in db.connection().execute(rows)]


def _by_project(db: Db, mine: list[ColumnElement[bool]]) -> list[dict[str, Any]]:
    columns = (_sessions.c.project_id, _projects.c.name.label("project"))
    rows = _grouped(mine, *columns).outerjoin(_projects, _projects.c.id == _sessions.c.project_id)
    rows = rows.group_by(_sessions.c.project_id, _projects.c.name)
    rows = rows.order_by(func.sum(_calls.c.input_tokens + _calls.c.output_tokens).desc())
    return [_shown(row) for row in db.connection().execute(rows.limit(GROUPS_MAX))]


def _top_sessions(db: Db, operator_id: str, project_id: str | None) -> list[dict[str, Any]]:
    """By all tokens of the session's life (H-038)."""
    total = _sessions.c.input_tokens + _sessions.c.output_tokens
    rows = select(
        _sessions.c.id.label("session_id"),
        _sessions.c.title,
        _sessions.c.source,
        _sessions.c.project_id,
        total.label("total_tokens"),
        *(_sessions.c[name] for name in _TOKENS),
        _sessions.c.api_calls,
        _sessions.c.estimated_cost_usd,
        _sessions.c.actual_cost_usd,
        _sessions.c.cost_status,
        _sessions.c.cost_source,
    ).where(_sessions.c.created_by == operator_id, _sessions.c.purged.is_(False), total > 0)
    if project_id is not None:
        rows = rows.where(_sessions.c.project_id == project_id)
    rows = rows.order_by(total.desc(), _sessions.c.id).limit(TOP_SESSIONS)
    return [dict(row._mapping) for row in db.connection().execute(rows)]


def _shown(row: Any) -> dict[str, Any]:
    shown = {key: value for key, value in row._mapping.items() if key != "day_at"}
    for name in _TOKENS:
        shown[name] = int(shown[name])
    shown["total_tokens"] = shown["input_tokens"] + shown["output_tokens"]
    shown["cost_status"] = _status(shown)
    return shown


def _status(shown: dict[str, Any]) -> str:
    if shown["actual_cost_usd"] is not None and shown["estimated_cost_usd"] is not None:
        return "mixed"
    if shown["actual_cost_usd"] is not None:
        return "actual"
    return "unknown" if shown["estimated_cost_usd"] is None else "estimated"


def _day(at: int) -> str:
    return datetime.fromtimestamp(at / 1000, UTC).strftime("%Y-%m-%d")
