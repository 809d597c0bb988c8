"""Small verbs over rows that every noun needs: insert once, load, and step a counter."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, TypeVar, cast

from sqlalchemy import Insert, Table, update
from sqlalchemy.dialects.postgresql import insert as postgres_insert
from sqlalchemy.dialects.sqlite import insert as sqlite_insert
from sqlalchemy.engine import CursorResult
from sqlmodel import SQLModel

from storage.engine import Db

Row = TypeVar("Row", bound=SQLModel)


def table(model: type[SQLModel]) -> Table:
    """The Core table behind a model."""
    return cast(Table, model.__table__)  # type: ignore[attr-defined]


def insert_once(db: Db, model: type[SQLModel], values: Mapping[str, Any]) -> bool:
    """Insert unless a row with the same key is there; whether it was new."""
    return insert_all_once(db, model, [values]) == 1


def insert_all_once(db: Db, model: type[SQLModel], rows: Sequence[Mapping[str, Any]]) -> int:
    """`insert_once` for many rows; how many were new."""
    if not rows:
        return 0
    statement = _insert_once(table(model), db.get_bind().dialect.name)
    values = [dict(row) for row in rows]
    result = db.connection().execute(statement, values[0] if len(values) == 1 else values)
    return cast("CursorResult[Any]", result).rowcount


@lru_cache(maxsize=256)
def _insert_once(place: Table, dialect: str) -> Insert:
    """The statement without its values, so that it is compiled once and not for every row."""
    insert = postgres_insert if dialect == "postgresql" else sqlite_insert
    # Without the option psycopg's count of an INSERT is lost, and every row looks like a repeat.
    return insert(place).on_conflict_do_nothing().execution_options(preserve_rowcount=True)


def step_counter(db: Db, model: type[SQLModel], key: Any, column: str, by: int = 1) -> int:
    """Add to a counter of the row with this key; its new value. Locks the row on Postgres."""
    place = table(model)
    counter = place.c[column]
    statement = (
        update(place)
        .where(next(iter(place.primary_key)) == key)
        .values({column: counter + by})
        .returning(counter)
    )
    return int(db.connection().execute(statement).scalar_one())


def change(db: Db, model: type[SQLModel], key: Any, **values: Any) -> None:
    """Set columns of the row with this key."""
    place = table(model)
    db.connection().execute(
        update(place).where(next(iter(place.primary_key)) == key).values(**values)
    )
