"""What an index holds, and how it would be searched."""

from __future__ import annotations

from pathlib import Path

from holdfast.domain.memory import MemorySettings, MemoryStatus, TextState, VectorState
from holdfast.memory import schema
from holdfast.memory.connection import Connection, has_vectors, loading_error
from holdfast.memory.embedders.embedding import NOBODY, Identity
from holdfast.memory.schema import Meta
from holdfast.memory.state import read_state


def status_of(
    path: Path,
    settings: MemorySettings,
    wanted: Identity,
    connection: Connection | None,
    *,
    dirty: bool,
) -> MemoryStatus:
    """The status of an index, or of one that is not there yet."""
    meta = schema.read_meta(connection) if connection is not None else None
    identity = meta.identity if meta is not None else wanted
    state = read_state(path)
    exists = connection is not None
    if meta is None:
        connection = None  # a file that was never finished may have no tables
    counts = _counts(connection)
    return MemoryStatus(
        path=str(path),
        exists=exists,
        dirty=dirty,
        provider=identity.provider,
        model=identity.model,
        sources=meta.sources if meta is not None else list(settings.sources),
        files=sum(one["files"] for one in counts.values()),
        chunks=sum(one["chunks"] for one in counts.values()),
        by_source=counts,
        cache_entries=_count(connection, "SELECT count(*) FROM embedding_cache"),
        bytes=path.stat().st_size if exists else 0,
        generation=_count(connection, "PRAGMA user_version"),
        text=_text_state(connection),
        vector=_vector_state(connection, settings, meta, identity),
        last_sync_at=state.last_sync_at,
        last_error=state.last_error,
    )


def _counts(connection: Connection | None) -> dict[str, dict[str, int]]:
    if connection is None:
        return {}
    counts: dict[str, dict[str, int]] = {}
    for name, asked in (
        ("files", "SELECT source, count(*) FROM files GROUP BY source"),
        ("chunks", "SELECT source, count(*) FROM chunks GROUP BY source"),
    ):
        for source, count in connection.execute(asked):
            counts.setdefault(source, {"files": 0, "chunks": 0})[name] = count
    return counts


def _count(connection: Connection | None, asked: str) -> int:
    return int(connection.execute(asked).fetchone()[0]) if connection is not None else 0


def _text_state(connection: Connection | None) -> TextState:
    if connection is None or schema.has_words(connection):
        return TextState(available=True)
    return TextState(available=False, error="this SQLite has no FTS5")


def _vector_state(
    connection: Connection | None, settings: MemorySettings, meta: Meta | None, identity: Identity
) -> VectorState:
    """Vectors are compared whenever there is an embedder; the setting only forbids sqlite-vec."""
    if identity == NOBODY:
        return VectorState(enabled=False, engine="none", dims=None)
    dims = meta.vector_dims if meta is not None else None
    error = loading_error() if settings.vectors else None
    if connection is None:
        loaded = settings.vectors and error is None
    else:
        # Until the first vector there is no table; then the one that could be made counts.
        loaded = has_vectors(connection) and (
            dims is None or schema.vector_dims(connection) is not None
        )
    return VectorState(
        enabled=True, engine="sqlite-vec" if loaded else "numpy", dims=dims, error=error
    )
