"""Quotas: how much one operator may keep. Asked wherever something is made, imports included."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from sqlalchemy import ColumnElement, Table, func, select

from holdfast.domain.errors import Conflict
from holdfast.storage.database.engine import Db
from holdfast.storage.database.rows import change, insert_once, table
from holdfast.storage.database.tables import Project, SessionRow
from holdfast.storage.database.tables_history import Meta
from holdfast.storage.database.tables_library import Alias

Kind = Literal["sessions", "projects", "aliases"]
DEFAULTS: dict[Kind, int] = {"sessions": 100_000, "projects": 1_000, "aliases": 10_000}
_PREFIX = "quota."
_sessions = table(SessionRow)
_COUNTED: dict[Kind, tuple[Table, str, ColumnElement[bool] | None]] = {
    "sessions": (_sessions, "created_by", _sessions.c.purged.is_(False)),
    "projects": (table(Project), "created_by", None),
    "aliases": (table(Alias), "operator_id", None),
}


def set_limits(db: Db, limits: Mapping[Kind, int]) -> None:
    """What every operator may keep from now on; what is there already stays."""
    for kind, most in limits.items():
        key, value = f"{_PREFIX}{kind}", str(most)
        if not insert_once(db, Meta, {"key": key, "value": value}):
            change(db, Meta, key, value=value)


def require_room(db: Db, operator_id: str, kind: Kind) -> None:
    """Conflict when the operator has as many as the quota allows."""
    kept = db.get(Meta, f"{_PREFIX}{kind}")
    most = DEFAULTS[kind] if kept is None else int(kept.value)
    place, owner, only = _COUNTED[kind]
    counted = select(func.count()).select_from(place).where(place.c[owner] == operator_id)
    if only is not None:
        counted = counted.where(only)
    if int(db.connection().execute(counted).scalar_one()) >= most:
        raise Conflict(
            f"you have {most} {kind}, as many as [limits] {kind}_per_operator allows; "
            f"remove some first",
            {"limit": most},
        )
