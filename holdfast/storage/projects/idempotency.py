"""Idempotency keys: reserved before the request acts, answered from the row ever after."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import delete, select, update

from holdfast.domain.clock import now_ms
from holdfast.domain.errors import Conflict
from holdfast.domain.ids import new_id
from holdfast.storage.database.engine import Db
from holdfast.storage.database.rows import insert_once, table
from holdfast.storage.database.tables_history import IdempotencyKey

KEEP_MS = 24 * 60 * 60 * 1000
_keys = table(IdempotencyKey)


@dataclass(frozen=True)
class Reservation:
    """A key in use. `command_id` makes the act repeatable; `status` is None until answered."""

    command_id: str
    status: int | None
    body: str | None


def reserve(db: Db, operator_id: str, key: str, request_hash: str) -> Reservation:
    """The key's row, made when new; Conflict when it was used for another request."""
    old = now_ms() - KEEP_MS
    mine = (_keys.c.operator_id == operator_id) & (_keys.c.key == key)
    db.connection().execute(delete(_keys).where(mine, _keys.c.created_at < old))
    fresh = {
        "operator_id": operator_id,
        "key": key,
        "request_hash": request_hash,
        "command_id": new_id(),
        "created_at": now_ms(),
    }
    insert_once(db, IdempotencyKey, fresh)
    row = db.connection().execute(select(_keys).where(mine)).one()
    if row.request_hash != request_hash:
        raise Conflict("this Idempotency-Key was used for another request")
    return Reservation(row.command_id, row.status, row.body)


def answer(db: Db, operator_id: str, key: str, *, status: int, body: str) -> None:
    """Keep the answer; the first one stays."""
    db.connection().execute(
        update(_keys)
        .where(_keys.c.operator_id == operator_id, _keys.c.key == key, _keys.c.status.is_(None))
        .values(status=status, body=body)
    )


def renew(db: Db, operator_id: str, key: str) -> None:
    """The act was refused for now and is over: under this key comes another one."""
    db.connection().execute(
        update(_keys)
        .where(_keys.c.operator_id == operator_id, _keys.c.key == key, _keys.c.status.is_(None))
        .values(command_id=new_id())
    )


def sweep(db: Db, *, keep_ms: int = KEEP_MS) -> int:
    """Forget keys that are too old to be repeated."""
    gone = delete(_keys).where(_keys.c.created_at < now_ms() - keep_ms)
    return db.connection().execute(gone).rowcount
