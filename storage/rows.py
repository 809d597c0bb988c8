"""Small verbs over rows that every noun needs: insert once, load, and step a counter."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar, cast

from sqlalchemy import Table, update
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
    """`insert_once` for many rows in one statement; how many were new."""
    if not rows:
        return 0
    postgres = db.get_bind().dialect.name == "postgresql"
    insert = postgres_insert if postgres else sqlite_insert
    statement = insert(table(model)).values([dict(row) for row in rows]).on_conflict_do_nothing()
    # Without the option psycopg's count of an INSERT is lost, and every row looks like a repeat.
    counted = statement.execution_options(preserve_rowcount=True)
    return cast("CursorResult[Any]", db.connection().execute(counted)).rowcount


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
