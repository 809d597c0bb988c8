"""Remembered answers: rules of a session or of a project, made from an approval."""

from __future__ import annotations

from sqlalchemy import ColumnElement, and_, bindparam, delete, func, or_, select
from typing_extensions import TypedDict

from holdfast.domain.clock import now_ms
from holdfast.domain.errors import Conflict, NotFound
from holdfast.domain.permissions.events import PermissionForgotten, PermissionRemembered
from holdfast.domain.permissions.rules import Effect, Rule
from holdfast.storage.database.engine import Db
from holdfast.storage.database.rows import fields_of, find_row, insert_once, made, table
from holdfast.storage.database.tables import SessionRow
from holdfast.storage.database.tables_approvals import PermissionRow
from holdfast.storage.log import events

RULES_MAX = 500
_rules = table(PermissionRow)
_OF_SESSION = and_(_rules.c.scope == "session", _rules.c.session_id == bindparam("session"))
_OF_PROJECT = and_(_rules.c.scope == "project", _rules.c.project_id == bindparam("project"))
_HOLDING = select(_rules).where(or_(_OF_SESSION, _OF_PROJECT)).order_by(_rules.c.id)


class PermissionShown(TypedDict):
    """A remembered rule."""

    id: str
    scope: str
    session_id: str
    project_id: str
    tool: str
    pattern: str | None
    effect: str
    made_from: str | None
    created_at: int


def remember(db: Db, row: PermissionRow, *, user_id: str) -> None:
    """Store a rule; its id is its maker's, so the same one twice is stored once."""
    if find_row(db, PermissionRow, row.id) is not None:
        return
    if _count(db, row) >= RULES_MAX:
        raise Conflict(f"at most {RULES_MAX} rules are remembered: forget some first")
    row.created_at = now_ms()
    if insert_once(db, PermissionRow, row.model_dump()):
        remembered = PermissionRemembered(
            rule_id=row.id,
            scope=row.scope,
            tool=row.tool,
            pattern=row.pattern,
            effect=row.effect,
            approval_id=row.made_from or "",
            user_id=user_id,
        )
        events.append(db, row.session_id, remembered, row=("session", row.session_id))


def holding(db: Db, session: SessionRow) -> list[Rule]:
    """The rules that hold for the calls of a session."""
    where = {"session": session.id, "project": session.project_id}
    rows = db.connection().execute(_HOLDING, where)
    return [
        Rule(tool=row.tool, pattern=row.pattern, effect=Effect(row.effect), id=row.id)
        for row in rows
    ]


def of_session(db: Db, session_id: str) -> list[PermissionRow]:
    """The rules of a session alone."""
    return _listed(db, _OF_SESSION, session=session_id)


def of_project(db: Db, project_id: str) -> list[PermissionRow]:
    """The rules of a project."""
    return _listed(db, _OF_PROJECT, project=project_id)


def forget(
    db: Db, rows: list[PermissionRow], *, user_id: str, rule_id: str | None = None
) -> list[PermissionRow]:
    """Forget these rules, or one of them; NotFound when it is not among them."""
    gone = [row for row in rows if rule_id in (None, row.id)]
    if rule_id is not None and not gone:
        raise NotFound("no such rule")
    for row in gone:
        db.connection().execute(delete(_rules).where(_rules.c.id == row.id))
        if find_row(db, SessionRow, row.session_id) is not None:
            forgotten = PermissionForgotten(rule_id=row.id, scope=row.scope, user_id=user_id)
            events.append(db, row.session_id, forgotten, row=("session", row.session_id))
    return gone


def view(row: PermissionRow) -> PermissionShown:
    """The rule as it is sent."""
    return fields_of(row, PermissionShown)


def _count(db: Db, row: PermissionRow) -> int:
    where = {"session": row.session_id, "project": row.project_id}
    own = _OF_SESSION if row.scope == "session" else _OF_PROJECT
    counted = select(func.count()).select_from(_rules).where(own)
    return int(db.connection().execute(counted, where).scalar_one())


def _listed(db: Db, own: ColumnElement[bool], **where: str) -> list[PermissionRow]:
    rows = select(_rules).where(own).order_by(_rules.c.id).limit(RULES_MAX)
    return [made(PermissionRow, row) for row in db.connection().execute(rows, where)]
