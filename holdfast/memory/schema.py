"""The tables of a memory index, and the one record that says what it was built with."""

from __future__ import annotations

import re
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from holdfast.domain.memory import MemorySettings, Source
from holdfast.memory.connection import Connection, Driver
from holdfast.memory.embedders.embedding import Identity

META_KEY = "memory_index_meta_v1"

TABLES = (
    "CREATE TABLE IF NOT EXISTS meta (key TEXT PRIMARY KEY, value TEXT NOT NULL)",
    """CREATE TABLE IF NOT EXISTS files (
        path TEXT PRIMARY KEY,
        source TEXT NOT NULL DEFAULT 'memory',
        hash TEXT NOT NULL,
        mtime INTEGER NOT NULL,
        size INTEGER NOT NULL
    )""",
    """CREATE TABLE IF NOT EXISTS chunks (
        id TEXT PRIMARY KEY,
        path TEXT NOT NULL,
        source TEXT NOT NULL DEFAULT 'memory',
        start_line INTEGER NOT NULL,
        end_line INTEGER NOT NULL,
        hash TEXT NOT NULL,
        model TEXT NOT NULL,
        text TEXT NOT NULL,
        embedding TEXT NOT NULL,
        updated_at INTEGER NOT NULL
    )""",
    "CREATE INDEX IF NOT EXISTS idx_chunks_path ON chunks(path)",
    "CREATE INDEX IF NOT EXISTS idx_chunks_source ON chunks(source)",
    """CREATE TABLE IF NOT EXISTS embedding_cache (
        provider TEXT NOT NULL,
        model TEXT NOT NULL,
        provider_key TEXT NOT NULL,
        hash TEXT NOT NULL,
        embedding TEXT NOT NULL,
        dims INTEGER,
        updated_at INTEGER NOT NULL,
        PRIMARY KEY (provider, model, provider_key, hash)
    )""",
    """CREATE INDEX IF NOT EXISTS idx_embedding_cache_updated_at
        ON embedding_cache(updated_at)""",
)
# Its rows have the row ids of `chunks`: the other columns cannot be looked up, only scanned.
WORDS = """CREATE VIRTUAL TABLE IF NOT EXISTS chunks_fts USING fts5(
    text, id UNINDEXED, path UNINDEXED, source UNINDEXED, model UNINDEXED,
    start_line UNINDEXED, end_line UNINDEXED
)"""
VECTORS = "CREATE VIRTUAL TABLE chunks_vec USING vec0(id TEXT PRIMARY KEY, embedding FLOAT[{dims}])"
_DIMS = re.compile(r"FLOAT\[(\d+)\]")


class Meta(BaseModel):
    """What an index was built with; another value of any field means another index (O-005)."""

    model_config = ConfigDict(frozen=True, populate_by_name=True)

    model: str
    provider: str
    provider_key: str = Field(default="", alias="providerKey")
    sources: list[Source] = Field(default_factory=list)
    chunk_tokens: int = Field(alias="chunkTokens")
    chunk_overlap: int = Field(alias="chunkOverlap")
    vector_dims: int | None = Field(default=None, alias="vectorDims")

    @property
    def identity(self) -> Identity:
        """Whose vectors it holds."""
        return Identity(self.provider, self.model, self.provider_key)


def wanted_meta(settings: MemorySettings, identity: Identity, dims: int | None = None) -> Meta:
    """The record of an index as the settings want it."""
    return Meta(
        model=identity.model,
        provider=identity.provider,
        provider_key=identity.key,
        sources=sorted(settings.sources),
        chunk_tokens=settings.chunks.tokens,
        chunk_overlap=settings.chunks.overlap,
        vector_dims=dims,
    )


def difference(found: Meta | None, wanted: Meta) -> str | None:
    """Why an index must be built anew, or None (O-019). Dimensions are known only afterwards."""
    if found is None:
        return "new"
    for reason, before, after in (
        ("provider", (found.provider, found.provider_key), (wanted.provider, wanted.provider_key)),
        ("model", found.model, wanted.model),
        ("sources", found.sources, wanted.sources),
        ("chunks", _chunks(found), _chunks(wanted)),
    ):
        if before != after:
            return reason
    return None


def ensure(connection: Connection) -> str | None:
    """Make what is missing of all tables; why words cannot be searched, or None (O-003, O-011)."""
    for statement in TABLES:
        connection.execute(statement)
    try:
        connection.execute(WORDS)
    except Driver.OperationalError as error:
        if "no such module" not in str(error):
            raise
        return str(error)
    return None


def ensure_vectors(connection: Connection, dims: int) -> None:
    """The table of vectors, for this many dimensions; one for others is dropped (O-012)."""
    found = vector_dims(connection)
    if found == dims:
        return
    if found is not None:
        connection.execute("DROP TABLE chunks_vec")
    connection.execute(VECTORS.format(dims=int(dims)))


def vector_dims(connection: Connection) -> int | None:
    """For how many dimensions the table of vectors was made, None when there is none."""
    found = _made(connection, "chunks_vec")
    match = _DIMS.search(found) if found else None
    return int(match.group(1)) if match else None


def has_words(connection: Connection) -> bool:
    """Whether the table of words was made."""
    return _made(connection, "chunks_fts") is not None


def read_meta(connection: Connection) -> Meta | None:
    """The record, or None: a file without one was never finished."""
    if _made(connection, "meta") is None:
        return None
    row = connection.execute("SELECT value FROM meta WHERE key = ?", (META_KEY,)).fetchone()
    try:
        return Meta.model_validate_json(row[0]) if row else None
    except ValidationError:
        return None


def write_meta(connection: Connection, meta: Meta) -> None:
    """Keep the record."""
    value = meta.model_dump_json(by_alias=True)
    connection.execute("INSERT OR REPLACE INTO meta (key, value) VALUES (?, ?)", (META_KEY, value))


def _made(connection: Connection, table: str) -> str | None:
    asked = "SELECT sql FROM sqlite_master WHERE name = ? AND type = 'table'"
    row: Any = connection.execute(asked, (table,)).fetchone()
    return str(row[0]) if row else None


def _chunks(meta: Meta) -> tuple[int, int]:
    return meta.chunk_tokens, meta.chunk_overlap
