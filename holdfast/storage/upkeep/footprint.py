"""What the store takes: by file, by table, by blob, and the largest sessions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from sqlalchemy import func, select, text
from sqlmodel import SQLModel

from holdfast.storage.database.engine import Db
from holdfast.storage.database.opening import OpenStore
from holdfast.storage.database.rows import table
from holdfast.storage.database.tables import Message, SessionRow
from holdfast.storage.database.tables_history import Blob, EventRow, Frame

LARGEST_MAX = 10
_COUNTED: dict[str, type[SQLModel]] = {
    "sessions": SessionRow,
    "messages": Message,
    "events": EventRow,
    "frames": Frame,
}
_messages, _sessions, _blobs = table(Message), table(SessionRow), table(Blob)


def footprint(
    store: OpenStore, *, operator_id: str | None = None, memory: Path | None = None
) -> dict[str, Any]:
    """Bytes and rows; the largest sessions are the operator's own."""
    report = store.read(lambda db: _rows(db, operator_id))
    report["database"] = _sqlite(store) if store.is_sqlite else store.read(_postgres)
    report["blobs"]["files_bytes"] = store.blobs.size()
    report["memory_bytes"] = _folder_bytes(memory or store.home / "memory")
    report["home_bytes"] = _folder_bytes(store.home)
    return report


def _rows(db: Db, operator_id: str | None) -> dict[str, Any]:
    counts = {
        name: int(
            db.connection().execute(select(func.count()).select_from(table(model))).scalar_one()
        )
        for name, model in _COUNTED.items()
    }
    chars = func.coalesce(func.sum(func.length(_messages.c.content)), 0)
    blobs = (
        db.connection()
        .execute(
            select(func.count(), func.coalesce(func.sum(_blobs.c.size), 0)).select_from(_blobs)
        )
        .one()
    )
    return {
        "row_counts": counts,
        "message_chars": int(db.connection().execute(select(chars)).scalar_one()),
        "blobs": {"count": int(blobs[0]), "content_bytes": int(blobs[1])},
        "largest_sessions": _largest(db, operator_id),
    }


def _largest(db: Db, operator_id: str | None) -> list[dict[str, Any]]:
    chars = func.sum(func.length(_messages.c.content))
    rows = (
        select(
            _sessions.c.id, _sessions.c.title, func.count().label("messages"), chars.label("chars")
        )
        .join_from(_messages, _sessions, _sessions.c.id == _messages.c.session_id)
        .group_by(_sessions.c.id, _sessions.c.title)
        .order_by(chars.desc())
        .limit(LARGEST_MAX)
    )
    if operator_id is not None:
        rows = rows.where(_sessions.c.created_by == operator_id)
    return [{**row._mapping, "chars": int(row.chars or 0)} for row in db.connection().execute(rows)]


def _sqlite(store: OpenStore) -> dict[str, Any]:
    path = Path(store.url.removeprefix("sqlite:///"))
    files = {
        suffix or "main": part.stat().st_size
        for suffix in ("", "-wal", "-shm")
        if (part := path.with_name(path.name + suffix)).exists()
    }
    return {
        "kind": "sqlite",
        "bytes": sum(files.values()),
        "files": files,
        "search_bytes": store.read(_sqlite_search_bytes),
    }


def _sqlite_search_bytes(db: Db) -> int:
    """What the index takes: the blocks of its two tables, if it is there."""
    known = text(
        "SELECT count(*) FROM sqlite_schema"
        " WHERE name IN ('search_words_data', 'search_trigrams_data')"
    )
    if db.connection().execute(known).scalar() != 2:
        return 0
    blocks = text(
        "SELECT (SELECT coalesce(sum(length(block)), 0) FROM search_words_data)"
        " + (SELECT coalesce(sum(length(block)), 0) FROM search_trigrams_data)"
    )
    return int(db.connection().execute(blocks).scalar_one())


def _postgres(db: Db) -> dict[str, Any]:
    whole = db.connection().execute(text("SELECT pg_database_size(current_database())"))
    sizes = db.connection().execute(
        text(
            "SELECT relname, pg_total_relation_size(oid) FROM pg_class"
            " WHERE relkind = 'r' AND relnamespace = 'public'::regnamespace"
        )
    )
    tables = {row[0]: int(row[1]) for row in sizes}
    return {
        "kind": "postgresql",
        "bytes": int(whole.scalar_one()),
        "search_bytes": sum(size for name, size in tables.items() if name.startswith("search_")),
        "tables": tables,
    }


def _folder_bytes(folder: Path) -> int:
    total = 0
    for path in folder.rglob("*"):
        try:
            if path.is_file() and not path.is_symlink():
                total += path.stat().st_size
        except OSError:
            continue  # it went away while we looked
    return total
