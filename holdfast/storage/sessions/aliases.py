"""Aliases: names that an operator gives to sessions and may move."""

from __future__ import annotations

from typing import Any

from sqlalchemy import delete, select
from sqlalchemy.engine import CursorResult

from holdfast.domain.clock import now_ms
from holdfast.domain.errors import NotFound, ValidationFailed
from holdfast.storage.database.engine import Db
from holdfast.storage.database.rows import insert_once, table
from holdfast.storage.database.tables_library import Alias
from holdfast.storage.projects import quotas

NAME_CHARS_MAX = 128
_aliases = table(Alias)


def put(db: Db, operator_id: str, name: str, session_id: str) -> dict[str, Any]:
    """Let the name mean this session; it may have meant another before."""
    clean = " ".join(name.split())
    if not 1 <= len(clean) <= NAME_CHARS_MAX or "/" in clean or not clean.isprintable():
        raise ValidationFailed(
            f"an alias has 1 to {NAME_CHARS_MAX} visible characters and no slash"
        )
    if find(db, operator_id, clean) is None:
        quotas.require_room(db, operator_id, "aliases")
    alias = {"operator_id": operator_id, "name": clean, "session_id": session_id}
    if not insert_once(db, Alias, {**alias, "created_at": now_ms()}):
        moved = _aliases.update().where(*_named(operator_id, clean))
        db.connection().execute(moved.values(session_id=session_id, created_at=now_ms()))
    return {"name": clean, "session_id": session_id}


def remove(db: Db, operator_id: str, name: str) -> None:
    """Let the name mean nothing."""
    gone: CursorResult[Any] = db.connection().execute(
        delete(_aliases).where(*_named(operator_id, name))
    )
    if gone.rowcount == 0:
        raise NotFound("Alias not found.")


def find(db: Db, operator_id: str, name: str) -> str | None:
    """The session that the name means."""
    row = select(_aliases.c.session_id).where(*_named(operator_id, name))
    found = db.connection().execute(row).scalar()
    return None if found is None else str(found)


def of_operator(db: Db, operator_id: str, *, limit: int = 500) -> list[dict[str, Any]]:
    """The operator's aliases by name."""
    rows = (
        select(_aliases.c.name, _aliases.c.session_id, _aliases.c.created_at)
        .where(_aliases.c.operator_id == operator_id)
        .order_by(_aliases.c.name)
        .limit(limit)
    )
    return [dict(row._mapping) for row in db.connection().execute(rows)]


def _named(operator_id: str, name: str) -> tuple[Any, Any]:
    return _aliases.c.operator_id == operator_id, _aliases.c.name == name
