"""The tables of an index are those of the specification, column by column and key by key."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.memory.connection import Connection, Driver
from tests.support.memory_file import DIMS, MemoryFile, WordEmbedder

# As the specification of the SQLite memory store writes them.
SPECIFIED = """
CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE files (
  path TEXT PRIMARY KEY, source TEXT NOT NULL DEFAULT 'memory', hash TEXT NOT NULL,
  mtime INTEGER NOT NULL, size INTEGER NOT NULL
);
CREATE TABLE chunks (
  id TEXT PRIMARY KEY, path TEXT NOT NULL, source TEXT NOT NULL DEFAULT 'memory',
  start_line INTEGER NOT NULL, end_line INTEGER NOT NULL, hash TEXT NOT NULL,
  model TEXT NOT NULL, text TEXT NOT NULL, embedding TEXT NOT NULL, updated_at INTEGER NOT NULL
);
CREATE INDEX idx_chunks_path ON chunks(path);
CREATE INDEX idx_chunks_source ON chunks(source);
CREATE TABLE embedding_cache (
  provider TEXT NOT NULL, model TEXT NOT NULL, provider_key TEXT NOT NULL, hash TEXT NOT NULL,
  embedding TEXT NOT NULL, dims INTEGER, updated_at INTEGER NOT NULL,
  PRIMARY KEY (provider, model, provider_key, hash)
);
CREATE INDEX idx_embedding_cache_updated_at ON embedding_cache(updated_at);
"""
INDEXES = (
    "SELECT made.name, part.name FROM sqlite_master AS made, pragma_index_info(made.name) AS part"
    " WHERE made.type = 'index' AND made.tbl_name = '{}' AND made.sql IS NOT NULL ORDER BY 1, 2"
)


@pytest.fixture
def specified() -> Connection:
    connection = Driver.connect(":memory:")
    connection.executescript(SPECIFIED)
    return connection


@pytest.fixture
def memory(tmp_path: Path) -> MemoryFile:
    made = MemoryFile(tmp_path, {"a.md": "redis"}, embedder=WordEmbedder())
    made.sync()
    made.close()
    return made


@pytest.mark.req("O-003", "O-004", "O-006", "O-007", "O-013")
@pytest.mark.parametrize("table", ["meta", "files", "chunks", "embedding_cache"])
def test_a_table_is_the_specified_one(
    memory: MemoryFile, specified: Connection, table: str
) -> None:
    for asked in (f"SELECT * FROM pragma_table_info('{table}')", INDEXES.format(table)):
        assert memory.sql(asked) == specified.execute(asked).fetchall()


@pytest.mark.req("O-013")
def test_the_cache_is_pruned_by_the_index_of_updated_at(memory: MemoryFile) -> None:
    asked = "EXPLAIN QUERY PLAN SELECT rowid FROM embedding_cache ORDER BY updated_at LIMIT 5"
    [(*_, plan)] = memory.sql(asked)
    assert "idx_embedding_cache_updated_at" in str(plan)


@pytest.mark.req("O-010")
def test_only_the_text_of_a_chunk_is_indexed_as_words(memory: MemoryFile) -> None:
    asked = "SELECT count(*) FROM chunks_fts WHERE chunks_fts MATCH '{}'"
    assert memory.sql(asked.format("redis")) == [(1,)]
    for other in ("md", "memory", "words"):  # of the path, the source and the model
        assert memory.sql(asked.format(other)) == [(0,)]


@pytest.mark.req("O-012")
def test_vectors_are_in_a_vec0_table_of_their_dimensions(memory: MemoryFile) -> None:
    [[made]] = memory.sql("SELECT sql FROM sqlite_master WHERE name = 'chunks_vec'")
    assert "USING vec0(id TEXT PRIMARY KEY, embedding FLOAT[16])" in str(made)
    [[size]] = memory.sql("SELECT length(embedding) FROM chunks_vec", vectors=True)
    assert size == DIMS * 4, "four bytes a number"
