"""Indexes of memories as hosts share them: who built the newest one, and where its pieces are."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import delete, select

from holdfast.storage.database import blobs
from holdfast.storage.database.engine import Db
from holdfast.storage.database.rows import insert_all_once, insert_once, table
from holdfast.storage.database.tables_history import Blob
from holdfast.storage.database.tables_hosts import MemoryIndexPart, MemoryIndexRow

_indexes, _parts = table(MemoryIndexRow), table(MemoryIndexPart)


def find(db: Db, project_id: str) -> MemoryIndexRow | None:
    """The newest index that a host shared, or None."""
    row = db.connection().execute(select(_indexes).where(_indexes.c.project_id == project_id))
    found = row.first()
    return None if found is None else MemoryIndexRow(**found._mapping)


def builders(db: Db) -> dict[str, str]:
    """The host that built the newest index of each project."""
    rows = db.connection().execute(select(_indexes.c.project_id, _indexes.c.host_id))
    return {str(row.project_id): str(row.host_id) for row in rows}


def parts(db: Db, project_id: str) -> list[str]:
    """The blobs that make up the index, in order."""
    mine = select(_parts.c.blob).where(_parts.c.project_id == project_id)
    return [str(one) for one in db.connection().scalars(mine.order_by(_parts.c.number))]


def share(
    db: Db, project_id: str, host_id: str, pieces: Sequence[Blob], *, note: str = ""
) -> tuple[int, set[str]]:
    """This host's index is the newest; its generation, and the blobs that it names no more."""
    first = {"project_id": project_id, "host_id": host_id, "generation": 0, "size": 0, "note": ""}
    insert_once(db, MemoryIndexRow, first)
    mine = _indexes.c.project_id == project_id
    held = select(_indexes.c.generation).where(mine).with_for_update()
    generation = int(db.connection().execute(held).scalar_one()) + 1
    before = set(parts(db, project_id))
    db.connection().execute(delete(_parts).where(_parts.c.project_id == project_id))
    rows = [
        {"project_id": project_id, "number": number, "blob": blobs.commit(db, piece)}
        for number, piece in enumerate(pieces)
    ]
    insert_all_once(db, MemoryIndexPart, rows)
    size = sum(piece.size for piece in pieces)
    changed = _indexes.update().where(mine)
    db.connection().execute(
        changed.values(host_id=host_id, generation=generation, size=size, note=note)
    )
    return generation, before - {piece.id for piece in pieces}
