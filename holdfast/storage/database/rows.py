"""Small verbs over rows that every noun needs: insert once, load, and step a counter.

A statement is built once and executed with values: to build it anew costs four times its execution.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any, TypeVar, cast

from sqlalchemy import Insert, Select, Table, Update, bindparam, select, update
from sqlalchemy.dialects.postgresql import insert as postgres_insert
from sqlalchemy.dialects.sqlite import insert as sqlite_insert
from sqlalchemy.engine import CursorResult
from sqlalchemy.engine import Row as Found
from sqlalchemy.orm import ClassManager, configure_mappers
from sqlalchemy.orm.attributes import manager_of_class
from sqlmodel import SQLModel

from holdfast.storage.database.engine import Db

Row = TypeVar("Row", bound=SQLModel)
Fields = TypeVar("Fields")
KEY = "key_"
BY = "by_"


def table(model: type[SQLModel]) -> Table:
    """The Core table behind a model."""
    return cast(Table, model.__table__)  # type: ignore[attr-defined]


@lru_cache(maxsize=64)
def _manager(model: type[SQLModel]) -> ClassManager[Any]:
    # In a process that has used no model yet, its attributes are still bare.
    configure_mappers()
    return manager_of_class(model)


def made(model: type[Row], found: Found[Any]) -> Row:
    """A whole row as its model, as the mapper loads it: the constructor costs ten times as much."""
    row: Row = _manager(model).new_instance()
    row.__dict__.update(found._mapping)
    return row


def fresh(model: type[Row], /, **values: Any) -> Row:
    """A new row with its defaults, of values that are right already: nothing is checked."""
    row: Row = _manager(model).new_instance()
    fixed, factories = _defaults(model)
    row.__dict__.update(fixed)
    for name, make in factories.items():
        if name not in values:
            row.__dict__[name] = make()
    row.__dict__.update(values)
    return row


@lru_cache(maxsize=64)
def _defaults(model: type[SQLModel]) -> tuple[dict[str, Any], dict[str, Callable[[], Any]]]:
    fields = model.model_fields.items()
    fixed = {name: one.default for name, one in fields if not one.is_required()}
    factories = {name: one.default_factory for name, one in fields if one.default_factory}
    return {name: fixed[name] for name in fixed if name not in factories}, cast(Any, factories)


def fields_of(row: object, fields: type[Fields]) -> Fields:
    """The columns of a row that the TypedDict `fields` names, as such a dict."""
    return cast(Fields, {name: getattr(row, name) for name in fields.__annotations__})


def find_row(db: Db, model: type[Row], key: Any, *, lock: bool = False) -> Row | None:
    """The row with this `id`, or None; with `lock` it is held until the transaction ends."""
    found = db.connection().execute(_by_id(table(model), lock=lock), {KEY: key}).first()
    return None if found is None else made(model, found)


@lru_cache(maxsize=256)
def _by_id(place: Table, *, lock: bool) -> Select[Any]:
    wanted = select(place).where(place.c.id == bindparam(KEY))
    # FOR NO KEY UPDATE: who adds a row that names this one need not wait (decision 19).
    return wanted.with_for_update(key_share=True) if lock else wanted


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
    statement = _step(table(model), column)
    return int(db.connection().execute(statement, {KEY: key, BY: by}).scalar_one())


@lru_cache(maxsize=256)
def _step(place: Table, column: str) -> Update:
    counter = place.c[column]
    stepped = by_key(place).values({column: counter + bindparam(BY)})
    return stepped.returning(counter)


def change(db: Db, model: type[SQLModel], key: Any, **values: Any) -> None:
    """Set columns of the row with this key."""
    db.connection().execute(by_key(table(model)), {**values, KEY: key})


@lru_cache(maxsize=256)
def by_key(place: Table) -> Update:
    """Change the row with the key `KEY`; executed with columns, it sets them."""
    return update(place).where(next(iter(place.primary_key)) == bindparam(KEY))
