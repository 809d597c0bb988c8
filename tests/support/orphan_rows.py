"""Changes that a foreign key would refuse, as a store of an earlier version may hold them."""

from __future__ import annotations

from typing import Any

from sqlalchemy import create_engine, text
from sqlalchemy.sql.expression import Executable

from holdfast.storage.database.engine import Store
from holdfast.storage.database.sqlite_driver import dbapi_module


def execute_unchecked(store: Store, *statements: Executable | str) -> None:
    """Run the statements in one transaction in which no foreign key is checked."""
    engine: Any = store.writer
    if store.is_sqlite:
        # A connection of SQLite checks no keys until it is told to.
        engine = create_engine(store.url, module=dbapi_module())
    with engine.begin() as connection:
        if not store.is_sqlite:
            connection.execute(text("SET LOCAL session_replication_role = replica"))
        for statement in statements:
            connection.execute(text(statement) if isinstance(statement, str) else statement)
    if store.is_sqlite:
        engine.dispose()
