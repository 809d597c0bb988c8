"""Wrong tokens by address, counted for all APIs together: a row for each ten seconds."""

from __future__ import annotations

from sqlalchemy import delete, func, select
from sqlalchemy.dialects.postgresql import insert as postgres_insert
from sqlalchemy.dialects.sqlite import insert as sqlite_insert

from holdfast.domain.clock import now_ms
from holdfast.storage.database.engine import Db
from holdfast.storage.database.rows import table
from holdfast.storage.database.tables_history import FailedLogin

SLOT_MS = 10_000
WINDOW_MS = 60_000
ADDRESS_CHARS_MAX = 64
_rows = table(FailedLogin)


def count(db: Db, address: str) -> int:
    """Note one wrong token; how many there were from this address in the last minute."""
    now = now_ms()
    address = address[:ADDRESS_CHARS_MAX]
    insert = postgres_insert if db.get_bind().dialect.name == "postgresql" else sqlite_insert
    noted = insert(_rows).values(address=address, slot=now // SLOT_MS, count=1)
    db.connection().execute(
        noted.on_conflict_do_update(
            index_elements=[_rows.c.address, _rows.c.slot], set_={"count": _rows.c.count + 1}
        )
    )
    recent = select(func.sum(_rows.c.count)).where(
        _rows.c.address == address, _rows.c.slot > (now - WINDOW_MS) // SLOT_MS
    )
    return int(db.connection().execute(recent).scalar_one())


def sweep(db: Db) -> int:
    """Forget what is older than the window; how many rows."""
    old = delete(_rows).where(_rows.c.slot <= (now_ms() - WINDOW_MS) // SLOT_MS)
    return db.connection().execute(old).rowcount
