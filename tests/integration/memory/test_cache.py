"""The cache of embeddings: whose vectors are found again, and whose are not."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.memory import cache, schema
from holdfast.memory.connection import Connection, Driver
from holdfast.memory.embedders.embedding import Identity
from tests.support.memory_file import MemoryFile, WordEmbedder

OURS = Identity("openai", "small", "key-1")


@pytest.fixture
def connection() -> Iterator[Connection]:
    made = Driver.connect(":memory:", isolation_level=None)
    schema.ensure(made)
    cache.keep(made, OURS, {"hash-1": "[1,0]", "hash-2": "[0,1]"})
    yield made
    made.close()


@pytest.mark.req("O-013", "O-014")
@pytest.mark.parametrize(
    ("asker", "found"),
    [
        (OURS, {"hash-1": "[1,0]"}),
        (Identity("ollama", "small", "key-1"), {}),
        (Identity("openai", "large", "key-1"), {}),
        (Identity("openai", "small", "key-2"), {}),
    ],
)
def test_vectors_of_another_provider_model_or_key_are_not_found(
    connection: Connection, asker: Identity, found: cache.Vectors
) -> None:
    assert cache.look_up(connection, asker, ["hash-1", "hash-3"], None) == found


@pytest.mark.req("O-013")
def test_vectors_of_other_dimensions_are_not_found(connection: Connection) -> None:
    assert cache.look_up(connection, OURS, ["hash-1"], 2) == {"hash-1": "[1,0]"}
    assert cache.look_up(connection, OURS, ["hash-1"], 3) == {}
    assert connection.execute("SELECT DISTINCT dims FROM embedding_cache").fetchall() == [(2,)]


@pytest.mark.req("O-013", "O-014")
def test_another_address_of_the_same_model_is_asked_for_its_own_vectors(tmp_path: Path) -> None:
    memory = MemoryFile(tmp_path, {"a.md": "redis", "b.md": "kafka"}, embedder=WordEmbedder())
    memory.sync()
    elsewhere = WordEmbedder()
    elsewhere.key = "another address"
    other = memory.again(embedder=elsewhere)
    assert other.sync()["reason"] == "provider"
    assert sorted(elsewhere.asked) == ["kafka", "redis"]
    # And back: what the first address said is still known.
    first = WordEmbedder()
    back = memory.again(embedder=first)
    assert (back.sync()["embeddings_cached"], first.asked) == (2, [])
    for one in (memory, other, back):
        one.close()


@pytest.mark.req("O-015")
def test_the_entry_with_the_oldest_time_goes_first(connection: Connection) -> None:
    connection.execute("UPDATE embedding_cache SET updated_at = 2 WHERE hash = 'hash-1'")
    connection.execute("UPDATE embedding_cache SET updated_at = 1 WHERE hash = 'hash-2'")
    assert cache.prune(connection, 2) == 0
    assert cache.prune(connection, 1) == 1
    assert connection.execute("SELECT hash FROM embedding_cache").fetchall() == [("hash-1",)]
