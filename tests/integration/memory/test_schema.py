"""The index file: its tables, its keys, who may read it, and builds that lack an extension."""

from __future__ import annotations

import hashlib
import json
import os
import stat
import struct
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.domain.memory import ChunkSettings, MemorySettings
from holdfast.memory import connection as connections
from holdfast.memory import schema, status
from holdfast.memory.connection import connect, has_vectors, loading_error, try_loading
from tests.support.memory_file import DIMS, MemoryFile, WordEmbedder

COLUMNS = {
    "meta": ["key", "value"],
    "files": ["path", "source", "hash", "mtime", "size"],
    "chunks": [
        "id", "path", "source", "start_line", "end_line", "hash", "model", "text", "embedding",
        "updated_at",
    ],
    "chunks_fts": ["text", "id", "path", "source", "model", "start_line", "end_line"],
    "chunks_vec": ["id", "embedding"],
    "embedding_cache": [
        "provider", "model", "provider_key", "hash", "embedding", "dims", "updated_at",
    ],
}  # fmt: skip


@pytest.fixture
def memory(tmp_path: Path) -> Iterator[MemoryFile]:
    made = MemoryFile(tmp_path, {"MEMORY.md": "redis\nis the cache"}, embedder=WordEmbedder())
    yield made
    made.close()


@pytest.mark.req("O-001")
def test_the_file_and_its_folders_are_made_for_their_owner_only(memory: MemoryFile) -> None:
    before = os.umask(0)
    try:
        memory.sync()
    finally:
        os.umask(before)
    folder = memory.path.parent
    assert [stat.S_IMODE(one.stat().st_mode) for one in (folder, folder.parent)] == [0o700] * 2
    assert {stat.S_IMODE(one.stat().st_mode) for one in folder.iterdir()} == {0o600}


@pytest.mark.req("O-003", "O-004", "O-006", "O-007", "O-010", "O-012", "O-013")
@pytest.mark.parametrize("table", sorted(COLUMNS))
def test_the_tables_have_the_columns_that_were_asked_for(memory: MemoryFile, table: str) -> None:
    memory.sync()
    rows = memory.sql(f"SELECT name FROM pragma_table_info('{table}')", vectors=True)
    assert [name for [name] in rows] == COLUMNS[table]


@pytest.mark.req("O-006", "O-007", "O-013")
def test_keys_indexes_and_defaults(memory: MemoryFile) -> None:
    memory.sync()

    def keys(table: str) -> list[object]:
        asked = f"SELECT name FROM pragma_table_info('{table}') WHERE pk > 0 ORDER BY pk"
        return [name for [name] in memory.sql(asked)]

    assert [keys(one) for one in ("meta", "files", "chunks")] == [["key"], ["path"], ["id"]]
    assert keys("embedding_cache") == ["provider", "model", "provider_key", "hash"]
    indexes = memory.sql("SELECT name FROM sqlite_master WHERE name LIKE 'idx_%' ORDER BY name")
    assert [name for [name] in indexes] == [
        "idx_chunks_path", "idx_chunks_source", "idx_embedding_cache_updated_at",
    ]  # fmt: skip
    asked = "SELECT dflt_value FROM pragma_table_info('{}') WHERE name = 'source'"
    for table in ("files", "chunks"):
        assert memory.sql(asked.format(table)) == [("'memory'",)]
    [[words]] = memory.sql("SELECT sql FROM sqlite_master WHERE name = 'chunks_fts'")
    assert str(words).count("UNINDEXED") == 6


@pytest.mark.req("O-004")
def test_one_record_says_what_the_index_was_built_with(memory: MemoryFile) -> None:
    memory.sync()
    [(key, value)] = memory.sql("SELECT key, value FROM meta")
    assert key == "memory_index_meta_v1"
    assert json.loads(str(value)) == {
        "model": "words", "provider": "fake", "providerKey": "key of words",
        "sources": ["memory"], "chunkTokens": 400, "chunkOverlap": 80, "vectorDims": DIMS,
    }  # fmt: skip


@pytest.mark.req("O-007", "O-008", "O-009", "O-012", "O-013")
def test_a_chunk_its_words_its_vector_and_its_cache(memory: MemoryFile) -> None:
    memory.sync()
    text = "redis\nis the cache"
    text_hash = hashlib.sha256(text.encode()).hexdigest()
    [chunk] = memory.sql(
        "SELECT id, path, source, start_line, end_line, hash, model, text FROM chunks"
    )
    place = "memory:MEMORY.md:1:2"
    chunk_id = hashlib.sha256(f"{place}:{text_hash}:words".encode()).hexdigest()
    assert chunk == (chunk_id, "MEMORY.md", "memory", 1, 2, text_hash, "words", text)
    [[embedding]] = memory.sql("SELECT embedding FROM chunks")
    vector = json.loads(str(embedding))
    assert len(vector) == DIMS
    assert sum(value * value for value in vector) == pytest.approx(1)
    words = memory.sql("SELECT id, path, source, model, start_line, end_line FROM chunks_fts")
    assert words == [(chunk_id, "MEMORY.md", "memory", "words", 1, 2)]
    [(vector_id, packed)] = memory.sql("SELECT id, embedding FROM chunks_vec", vectors=True)
    assert vector_id == chunk_id
    assert isinstance(packed, bytes)
    assert struct.unpack(f"{DIMS}f", packed) == pytest.approx(vector)
    [cached] = memory.sql(
        "SELECT provider, model, provider_key, hash, embedding, dims FROM embedding_cache"
    )
    assert cached == ("fake", "words", "key of words", text_hash, embedding, DIMS)


@pytest.mark.req("O-012")
def test_vectors_have_a_table_from_the_first_vector_on(tmp_path: Path) -> None:
    memory = MemoryFile(tmp_path, embedder=WordEmbedder())
    memory.sync()
    assert memory.sql("SELECT 1 FROM sqlite_master WHERE name = 'chunks_vec'") == []
    memory.notes["MEMORY.md"] = "redis"
    assert memory.sync()["reindexed"] is False
    [[made]] = memory.sql("SELECT sql FROM sqlite_master WHERE name = 'chunks_vec'")
    assert f"FLOAT[{DIMS}]" in str(made)
    memory.close()


@pytest.mark.req("O-012")
def test_other_dimensions_make_another_table(tmp_path: Path) -> None:
    embedder = WordEmbedder()
    memory = MemoryFile(tmp_path, {"a.md": "one", "b.md": "two"}, embedder=embedder)
    memory.sync()
    embedder.dims = 8
    memory.notes["b.md"] = "three"
    report = memory.sync()
    assert (report["reindexed"], report["reason"]) == (True, "dims")
    assert memory.sql("SELECT count(*) FROM chunks_vec", vectors=True) == [(2,)]
    lengths = memory.sql("SELECT DISTINCT json_array_length(embedding) FROM chunks")
    assert lengths == [(8,)]
    assert sorted(memory.paths("one three")) == ["a.md", "b.md"]
    memory.close()


@pytest.mark.req("O-012")
def test_the_table_for_other_dimensions_is_dropped(tmp_path: Path) -> None:
    memory = MemoryFile(tmp_path, {"a.md": "one"}, embedder=WordEmbedder())
    memory.sync()
    connection = connect(memory.path, vectors=True)
    schema.ensure_vectors(connection, 4)
    assert schema.vector_dims(connection) == 4
    connection.close()
    memory.close()


@pytest.mark.req("O-011")
def test_a_build_without_fts5_still_remembers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory = MemoryFile(tmp_path, {"MEMORY.md": "redis is the cache"}, embedder=WordEmbedder())
    with monkeypatch.context() as without:
        without.setattr(schema, "WORDS", schema.WORDS.replace("fts5", "no_such_module"))
        assert memory.sync()["chunks"] == 1
        status = memory.index.status(None)
        assert (status.text.available, status.vector.engine) == (False, "sqlite-vec")
        assert memory.paths("redis is the cache") == ["MEMORY.md"]
    # A build that has it fills in the words.
    assert memory.sync()["reindexed"] is False
    assert memory.index.status(None).text.available
    assert memory.sql("SELECT count(*) FROM chunks_fts WHERE chunks_fts MATCH 'redis'") == [(1,)]
    memory.close()


@pytest.mark.req("O-002")
def test_an_extension_is_loaded_only_when_vectors_are_wanted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "load", lambda _connection: pytest.fail("loaded"))
    settings = MemorySettings(vectors=False)
    memory = MemoryFile(tmp_path, {"a.md": "redis"}, embedder=WordEmbedder(), settings=settings)
    memory.sync()
    assert memory.paths("redis") == ["a.md"]
    status = memory.index.status(None)
    assert (status.vector.enabled, status.vector.engine) == (True, "numpy")
    assert memory.sql("SELECT 1 FROM sqlite_master WHERE name = 'chunks_vec'") == []
    memory.close()


@pytest.mark.req("O-002", "O-012")
def test_no_other_extension_can_be_loaded_afterwards(memory: MemoryFile) -> None:
    memory.sync()
    connection = connect(memory.path, vectors=True)
    assert has_vectors(connection)
    with pytest.raises(connections.Driver.OperationalError, match="not authorized"):
        connection.load_extension("anything")
    connection.close()


@pytest.mark.req("O-035")
def test_an_extension_that_hangs_is_given_up() -> None:
    let_go = threading.Event()

    def hang(_connection: object) -> None:
        let_go.wait()

    error = try_loading(hang, 0.01)
    let_go.set()
    assert "did not load within" in str(error)
    assert connections.LOAD_TIMEOUT_S == 30
    assert loading_error() is None


@pytest.mark.req("O-035")
def test_a_process_ends_although_the_extension_hangs_in_loading() -> None:
    program = (
        "import threading; from holdfast.memory.connection import try_loading;"
        "print(try_loading(lambda connection: threading.Event().wait(), 0.01))"
    )
    ended = subprocess.run(
        (sys.executable, "-c", program), capture_output=True, text=True, timeout=60, check=True
    )
    assert "did not load within" in ended.stdout


def test_an_index_that_cannot_be_written_is_no_index_without_words(tmp_path: Path) -> None:
    memory = MemoryFile(tmp_path, {"a.md": "words"})
    memory.sync()
    connection = connect(memory.path, vectors=False)
    assert schema.ensure(connection) is None
    connection.execute("DROP TABLE chunks_fts")
    connection.execute("PRAGMA query_only=ON")
    with pytest.raises(connections.Driver.OperationalError, match="readonly"):
        schema.ensure(connection)
    connection.close()


@pytest.mark.req("O-033")
def test_without_the_extension_vectors_are_compared_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(_connection: object) -> None:
        raise OSError("no such library")

    memory = MemoryFile(tmp_path, {"a.md": "redis", "b.md": "other"}, embedder=WordEmbedder())
    with monkeypatch.context() as without:
        without.setattr(connections, "loading_error", lambda: try_loading(broken, 10.0))
        without.setattr("holdfast.memory.status.loading_error", lambda: try_loading(broken, 10.0))
        memory.sync()
        [hit] = memory.search("redis")
        assert hit.vector_score == pytest.approx(1, abs=0.01)
        vector = memory.index.status(None).vector
        assert (vector.engine, vector.error) == ("numpy", "OSError: no such library")
    # Where it loads again, the table is filled from what the chunks hold.
    other = memory.again(embedder=WordEmbedder())
    other.sync()
    assert other.sql("SELECT count(*) FROM chunks_vec", vectors=True) == [(2,)]
    assert other.index.status(None).vector.engine == "sqlite-vec"
    [again] = other.search("redis")
    assert again.score == pytest.approx(hit.score, abs=1e-4)
    memory.close()
    other.close()


@pytest.mark.req("O-026")
def test_chunks_are_of_the_size_that_the_settings_say(tmp_path: Path) -> None:
    settings = MemorySettings(chunks=ChunkSettings(tokens=32, overlap=0))
    memory = MemoryFile(
        tmp_path, {"a.md": "\n".join(["twenty characters .."] * 60)}, settings=settings
    )
    assert memory.sync()["chunks"] == 10
    assert memory.sql("SELECT max(length(text)) FROM chunks") == [(125,)]
    memory.close()


def test_equal_parts_of_a_long_line_are_one_chunk(tmp_path: Path) -> None:
    settings = MemorySettings(chunks=ChunkSettings(tokens=32, overlap=0))
    memory = MemoryFile(tmp_path, {"a.md": "a" * 128 * 5}, settings=settings)
    assert memory.sync()["chunks"] == 1
    memory.close()


def test_an_extension_that_nobody_wants_is_no_trouble(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(status, "loading_error", lambda: "no such library")
    for wanted, error in ((False, None), (True, "no such library")):
        settings = MemorySettings(vectors=wanted)
        memory = MemoryFile(tmp_path / str(wanted), embedder=WordEmbedder(), settings=settings)
        assert memory.index.status(None).vector.error == error


def test_scores_are_shown_with_six_digits(tmp_path: Path) -> None:
    notes = {f"{n}.md": " ".join(["redis", *("filler" for _ in range(n))]) for n in range(3)}
    memory = MemoryFile(tmp_path, notes, embedder=WordEmbedder())
    memory.sync()
    hits = memory.search("redis")
    assert len(hits) == 3
    for hit in hits:
        for score in (hit.score, hit.text_score, hit.vector_score):
            assert score is not None
            assert score == round(score, 6)
    memory.close()
