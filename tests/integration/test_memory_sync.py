"""Synchronising: only what changed is read, embedded and written; what vanished is forgotten."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from domain.memory import (
    MAX_FILE_BYTES,
    ChunkSettings,
    MemorySettings,
    QuerySettings,
)
from memory.embedding import EmbeddingFailed
from memory.fallback import FallbackEmbedder
from memory.sync import CALLS_AT_ONCE, LOT_TEXTS
from tests.support.memory import Shelf, WordEmbedder

NOTES = {"MEMORY.md": "apples are red", "memory/b.md": "pears are green"}
COUNTS = (
    "SELECT (SELECT count(*) FROM files), (SELECT count(*) FROM chunks),"
    " (SELECT count(*) FROM chunks_fts), (SELECT count(*) FROM chunks_vec)"
)


@pytest.fixture
def embedder() -> WordEmbedder:
    return WordEmbedder()


@pytest.fixture
def shelf(tmp_path: Path, embedder: WordEmbedder) -> Iterator[Shelf]:
    made = Shelf(tmp_path, NOTES, embedder=embedder)
    yield made
    made.close()


@pytest.mark.req("O-006")
def test_what_has_not_changed_is_not_even_read(shelf: Shelf, embedder: WordEmbedder) -> None:
    first = shelf.sync()
    assert (first["reason"], first["files_changed"], first["chunks_embedded"]) == ("new", 2, 2)
    shelf.notes.read_paths.clear()
    embedder.asked.clear()
    second = shelf.sync()
    assert (second["reindexed"], second["files_changed"]) == (False, 0)
    assert (second["files"], second["chunks"]) == (2, 2)
    assert (shelf.notes.read_paths, embedder.asked) == ([], [])


@pytest.mark.req("O-006", "O-013")
def test_only_chunks_that_changed_are_embedded(tmp_path: Path, embedder: WordEmbedder) -> None:
    settings = MemorySettings(chunks=ChunkSettings(tokens=32, overlap=0))
    lines = [f"{n:02} " + "x" * 100 for n in range(10)]
    shelf = Shelf(tmp_path, {"a.md": "\n".join(lines)}, embedder=embedder, settings=settings)
    assert shelf.sync()["chunks_embedded"] == 10
    lines[4] = "04 changed " + "y" * 100
    shelf.notes["a.md"] = "\n".join(lines)
    embedder.asked.clear()
    report = shelf.sync()
    assert embedder.asked == [lines[4]]
    assert (report["chunks_embedded"], report["embeddings_cached"]) == (1, 9)
    shelf.close()


def test_without_a_cache_unchanged_chunks_keep_their_vectors(
    tmp_path: Path, embedder: WordEmbedder
) -> None:
    settings = MemorySettings(cache_entries=0, chunks=ChunkSettings(tokens=32, overlap=0))
    shelf = Shelf(tmp_path, {"a.md": "x" * 128 + "\none"}, embedder=embedder, settings=settings)
    shelf.sync()
    assert shelf.sql("SELECT count(*) FROM embedding_cache") == [(0,)]
    shelf.notes["a.md"] = "x" * 128 + "\ntwo"
    assert shelf.sync()["chunks_embedded"] == 1
    shelf.close()


@pytest.mark.req("O-028")
def test_a_file_that_vanished_is_forgotten_everywhere(shelf: Shelf) -> None:
    shelf.sync()
    assert shelf.sql(COUNTS, vectors=True) == [(2, 2, 2, 2)]
    del shelf.notes["memory/b.md"]
    assert shelf.index.is_dirty(shelf.notes.documents())
    assert shelf.sync()["files_removed"] == 1
    assert shelf.sql(COUNTS, vectors=True) == [(1, 1, 1, 1)]
    assert shelf.paths("pears") == []


@pytest.mark.req("O-028")
def test_a_file_that_vanishes_before_it_is_read_is_forgotten(shelf: Shelf) -> None:
    shelf.sync()
    shelf.notes["memory/b.md"] = "plums"
    documents = shelf.notes.documents()
    del shelf.notes["memory/b.md"]
    shelf.index.sync(documents, shelf.notes.read)
    assert shelf.sql(COUNTS, vectors=True) == [(1, 1, 1, 1)]


@pytest.mark.req("O-028")
def test_words_are_forgotten_even_after_a_vacuum(shelf: Shelf) -> None:
    shelf.sync()
    shelf.sql("DELETE FROM chunks_fts WHERE path = 'MEMORY.md'")
    shelf.sql("UPDATE chunks SET rowid = rowid + 100")
    shelf.notes["memory/b.md"] = "plums"
    shelf.sync()
    assert shelf.paths("green") == []
    assert shelf.paths("plums") == ["memory/b.md"]


def test_a_change_replaces_what_was_there(shelf: Shelf) -> None:
    shelf.sync()
    shelf.notes["MEMORY.md"] = "plums are blue"
    shelf.sync()
    assert shelf.paths("plums")[0] == "MEMORY.md"
    assert all("apples" not in hit.snippet for hit in shelf.search("apples"))
    assert shelf.sql(COUNTS, vectors=True) == [(2, 2, 2, 2)]


@pytest.mark.req("O-015")
def test_the_oldest_of_the_cache_goes_first(tmp_path: Path, embedder: WordEmbedder) -> None:
    settings = MemorySettings(cache_entries=3)
    texts = {f"{n}.md": f"note {n}" for n in range(5)}
    shelf = Shelf(tmp_path, texts, embedder=embedder, settings=MemorySettings())
    shelf.sync()
    shelf.sql("UPDATE embedding_cache SET updated_at = 10 - rowid")
    kept = shelf.sql("SELECT hash FROM embedding_cache WHERE rowid <= 3 ORDER BY hash")
    other = shelf.again(embedder=embedder, settings=settings)
    other.sync()
    assert other.sql("SELECT hash FROM embedding_cache ORDER BY hash") == kept
    shelf.close()
    other.close()


@pytest.mark.req("O-027")
def test_a_few_calls_run_at_once_and_never_more(tmp_path: Path) -> None:
    embedder = WordEmbedder()
    mutex, running, most = threading.Lock(), [0], [0]
    together = threading.Barrier(CALLS_AT_ONCE)

    def before() -> None:
        with mutex:
            running[0] += 1
            most[0] = max(most[0], running[0])
        together.wait(timeout=120)
        with mutex:
            running[0] -= 1

    embedder.before = before
    count = LOT_TEXTS * CALLS_AT_ONCE * 2
    shelf = Shelf(tmp_path, {f"{n}.md": f"note {n}" for n in range(count)}, embedder=embedder)
    assert shelf.sync()["chunks_embedded"] == count
    assert most[0] == CALLS_AT_ONCE
    shelf.close()


def test_progress_is_told(shelf: Shelf) -> None:
    told: list[tuple[int, int]] = []
    shelf.index.sync(
        shelf.notes.documents(), shelf.notes.read, progress=lambda *numbers: told.append(numbers)
    )
    assert told == [(0, 2), (1, 2), (2, 2)]


def test_half_a_character_does_not_stop_the_index(shelf: Shelf) -> None:
    shelf.notes["memory/odd.md"] = "strange \ud800 kumquat \x00 end"
    shelf.sync()
    assert shelf.paths("kumquat")[0] == "memory/odd.md"


def test_what_is_too_big_or_of_another_source_is_left_out(shelf: Shelf) -> None:
    documents = [
        *shelf.notes.documents(),
        shelf.notes.documents()[0].model_copy(
            update={"path": "sessions/1.md", "source": "sessions"}
        ),
        shelf.notes.documents()[0].model_copy(
            update={"path": "big.md", "size": MAX_FILE_BYTES + 1}
        ),
    ]
    shelf.index.sync(documents, shelf.notes.read)
    assert shelf.sql("SELECT path FROM files ORDER BY path") == [("MEMORY.md",), ("memory/b.md",)]
    assert not shelf.index.is_dirty(documents)


def test_an_index_that_is_not_there_answers_and_makes_no_file(tmp_path: Path) -> None:
    shelf = Shelf(tmp_path, embedder=WordEmbedder())
    assert shelf.search("anything") == []
    status = shelf.index.status([])
    assert (status.exists, status.dirty, status.files) == (False, False, 0)
    assert (status.provider, status.model) == ("fake", "words")
    shelf.notes["MEMORY.md"] = "x"
    assert shelf.index.is_dirty(shelf.notes.documents())
    assert list(tmp_path.iterdir()) == []
    shelf.close()


def test_the_status_says_what_there_is(tmp_path: Path, embedder: WordEmbedder) -> None:
    settings = MemorySettings(sources=["memory", "sessions"])
    texts = {**NOTES, "sessions/1.md": "we spoke of plums"}
    shelf = Shelf(tmp_path, texts, embedder=embedder, settings=settings)
    shelf.sync()
    status = shelf.index.status(shelf.notes.documents())
    assert (status.exists, status.dirty, status.files, status.chunks) == (True, False, 3, 3)
    assert status.by_source == {
        "memory": {"files": 2, "chunks": 2}, "sessions": {"files": 1, "chunks": 1},
    }  # fmt: skip
    assert (status.cache_entries, status.generation) == (3, 1)
    assert status.bytes == shelf.path.stat().st_size
    assert status.last_sync_at is not None
    assert status.last_error is None
    assert status.vector.dims == embedder.dims
    shelf.close()


def test_dirty_means_that_a_sync_would_change_something(
    shelf: Shelf, embedder: WordEmbedder
) -> None:
    shelf.sync()
    assert not shelf.index.is_dirty(shelf.notes.documents())
    shelf.notes["MEMORY.md"] = "other"
    assert shelf.index.is_dirty(shelf.notes.documents())
    shelf.sync()
    assert not shelf.index.status(shelf.notes.documents()).dirty
    for settings, other in (
        (MemorySettings(chunks=ChunkSettings(tokens=100)), embedder),
        (MemorySettings(), WordEmbedder("other model")),
        (MemorySettings(), None),
    ):
        handle = shelf.again(embedder=other, settings=settings)
        assert handle.index.is_dirty(shelf.notes.documents())
        handle.close()
    # What is asked of a query has no part in how the index is built.
    same = shelf.again(
        embedder=embedder, settings=MemorySettings(query=QuerySettings(max_results=9))
    )
    assert not same.index.is_dirty(shelf.notes.documents())
    same.close()


@pytest.mark.req("O-030")
def test_a_failing_embedder_gives_way_and_the_index_is_built_anew(tmp_path: Path) -> None:
    wanted, other = WordEmbedder("wanted"), WordEmbedder("other")
    embedders = FallbackEmbedder(wanted, other)
    shelf = Shelf(tmp_path, NOTES, embedder=embedders)
    shelf.sync()
    wanted.failure = EmbeddingFailed("the key was revoked", passing=False)
    shelf.notes["memory/c.md"] = "plums"
    report = shelf.sync()
    assert (report["reindexed"], report["model"]) == (True, "other")
    assert report["fell_back"] == "the key was revoked"
    assert shelf.sql("SELECT DISTINCT model FROM chunks") == [("other",)]
    assert shelf.paths("plums")[0] == "memory/c.md"
    # Both fail: words still work, and the vectors that were paid for are kept.
    other.failure = EmbeddingFailed("gone too", passing=True)
    shelf.notes["memory/d.md"] = "figs"
    report = shelf.sync()
    assert (report["provider"], report["model"]) == ("none", "fts-only")
    assert shelf.paths("figs") == ["memory/d.md"]
    assert shelf.sql("SELECT model, count(*) FROM embedding_cache GROUP BY model") == [
        ("other", 3), ("wanted", 2),
    ]  # fmt: skip
    shelf.close()


def test_a_failing_embedder_without_another_fails_the_sync_and_is_remembered(
    shelf: Shelf, embedder: WordEmbedder
) -> None:
    shelf.sync()
    embedder.failure = EmbeddingFailed("no route", passing=True)
    shelf.notes["MEMORY.md"] = "plums"
    with pytest.raises(EmbeddingFailed, match="no route"):
        shelf.sync()
    status = shelf.index.status(shelf.notes.documents())
    assert status.dirty
    assert "no route" in str(status.last_error)
    assert status.last_sync_at is not None
    assert "MEMORY.md" in shelf.paths("apples")
    embedder.failure = None
    shelf.sync()
    assert shelf.index.status(None).last_error is None
