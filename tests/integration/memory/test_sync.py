"""Synchronising: only what changed is read, embedded and written; what vanished is forgotten."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from holdfast.domain.memory import MAX_FILE_BYTES, ChunkSettings, MemorySettings, QuerySettings
from holdfast.memory import sync
from holdfast.memory.connection import Driver
from holdfast.memory.embedders.embedding import EmbeddingFailed
from holdfast.memory.embedders.fallback import FallbackEmbedder
from holdfast.memory.sync import CALLS_AT_ONCE, LOT_TEXTS
from tests.support.memory_file import MemoryFile, WordEmbedder

NOTES = {"MEMORY.md": "apples are red", "memory/b.md": "pears are green"}
COUNTS = (
    "SELECT (SELECT count(*) FROM files), (SELECT count(*) FROM chunks),"
    " (SELECT count(*) FROM chunks_fts), (SELECT count(*) FROM chunks_vec)"
)


@pytest.fixture
def embedder() -> WordEmbedder:
    return WordEmbedder()


@pytest.fixture
def memory(tmp_path: Path, embedder: WordEmbedder) -> Iterator[MemoryFile]:
    made = MemoryFile(tmp_path, NOTES, embedder=embedder)
    yield made
    made.close()


@pytest.mark.req("O-006")
def test_what_has_not_changed_is_not_even_read(memory: MemoryFile, embedder: WordEmbedder) -> None:
    first = memory.sync()
    assert (first["reason"], first["files_changed"], first["chunks_embedded"]) == ("new", 2, 2)
    memory.notes.read_paths.clear()
    embedder.asked.clear()
    second = memory.sync()
    assert (second["reindexed"], second["files_changed"]) == (False, 0)
    assert (second["files"], second["chunks"]) == (2, 2)
    assert (memory.notes.read_paths, embedder.asked) == ([], [])


@pytest.mark.req("O-006", "O-013")
def test_only_chunks_that_changed_are_embedded(tmp_path: Path, embedder: WordEmbedder) -> None:
    settings = MemorySettings(chunks=ChunkSettings(tokens=32, overlap=0))
    lines = [f"{n:02} " + "x" * 100 for n in range(10)]
    memory = MemoryFile(tmp_path, {"a.md": "\n".join(lines)}, embedder=embedder, settings=settings)
    assert memory.sync()["chunks_embedded"] == 10
    lines[4] = "04 changed " + "y" * 100
    memory.notes["a.md"] = "\n".join(lines)
    embedder.asked.clear()
    report = memory.sync()
    assert embedder.asked == [lines[4]]
    assert (report["chunks_embedded"], report["embeddings_cached"]) == (1, 9)
    memory.close()


def test_without_a_cache_unchanged_chunks_keep_their_vectors(
    tmp_path: Path, embedder: WordEmbedder
) -> None:
    settings = MemorySettings(cache_entries=0, chunks=ChunkSettings(tokens=32, overlap=0))
    memory = MemoryFile(
        tmp_path, {"a.md": "x" * 128 + "\none"}, embedder=embedder, settings=settings
    )
    memory.sync()
    assert memory.sql("SELECT count(*) FROM embedding_cache") == [(0,)]
    memory.notes["a.md"] = "x" * 128 + "\ntwo"
    assert memory.sync()["chunks_embedded"] == 1
    memory.close()


@pytest.mark.req("O-028")
def test_a_file_that_vanished_is_forgotten_everywhere(memory: MemoryFile) -> None:
    memory.sync()
    assert memory.sql(COUNTS, vectors=True) == [(2, 2, 2, 2)]
    del memory.notes["memory/b.md"]
    assert memory.index.is_dirty(memory.notes.documents())
    assert memory.sync()["files_removed"] == 1
    assert memory.sql(COUNTS, vectors=True) == [(1, 1, 1, 1)]
    assert memory.paths("pears") == []


@pytest.mark.req("O-028")
def test_a_file_that_vanishes_before_it_is_read_is_forgotten(memory: MemoryFile) -> None:
    memory.sync()
    memory.notes["memory/b.md"] = "plums"
    documents = memory.notes.documents()
    del memory.notes["memory/b.md"]
    memory.index.sync(documents, memory.notes.read)
    assert memory.sql(COUNTS, vectors=True) == [(1, 1, 1, 1)]


@pytest.mark.req("O-028")
def test_words_are_forgotten_even_after_a_vacuum(memory: MemoryFile) -> None:
    memory.sync()
    memory.sql("DELETE FROM chunks_fts WHERE path = 'MEMORY.md'")
    memory.sql("UPDATE chunks SET rowid = rowid + 100")
    memory.notes["memory/b.md"] = "plums"
    memory.sync()
    assert memory.paths("green") == []
    assert memory.paths("plums") == ["memory/b.md"]


def test_a_change_replaces_what_was_there(memory: MemoryFile) -> None:
    memory.sync()
    memory.notes["MEMORY.md"] = "plums are blue"
    memory.sync()
    assert memory.paths("plums")[0] == "MEMORY.md"
    assert all("apples" not in hit.snippet for hit in memory.search("apples"))
    assert memory.sql(COUNTS, vectors=True) == [(2, 2, 2, 2)]


@pytest.mark.req("O-015")
def test_the_oldest_of_the_cache_goes_first(tmp_path: Path, embedder: WordEmbedder) -> None:
    settings = MemorySettings(cache_entries=3)
    texts = {f"{n}.md": f"note {n}" for n in range(5)}
    memory = MemoryFile(tmp_path, texts, embedder=embedder, settings=MemorySettings())
    memory.sync()
    memory.sql("UPDATE embedding_cache SET updated_at = 10 - rowid")
    kept = memory.sql("SELECT hash FROM embedding_cache WHERE rowid <= 3 ORDER BY hash")
    other = memory.again(embedder=embedder, settings=settings)
    other.sync()
    assert other.sql("SELECT hash FROM embedding_cache ORDER BY hash") == kept
    memory.close()
    other.close()


@pytest.mark.req("O-027")
def test_four_calls_run_at_once_and_never_more(tmp_path: Path) -> None:
    assert CALLS_AT_ONCE == 4
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
    memory = MemoryFile(tmp_path, {f"{n}.md": f"note {n}" for n in range(count)}, embedder=embedder)
    assert memory.sync()["chunks_embedded"] == count
    assert most[0] == CALLS_AT_ONCE
    memory.close()


def test_progress_is_told(memory: MemoryFile) -> None:
    told: list[tuple[int, int]] = []
    memory.index.sync(
        memory.notes.documents(), memory.notes.read, progress=lambda *numbers: told.append(numbers)
    )
    assert told == [(0, 2), (1, 2), (2, 2)]


def test_half_a_character_does_not_stop_the_index(memory: MemoryFile) -> None:
    memory.notes["memory/odd.md"] = "strange \ud800 kumquat \x00 end"
    memory.sync()
    assert memory.paths("kumquat")[0] == "memory/odd.md"


def test_what_is_too_big_or_of_another_source_is_left_out(memory: MemoryFile) -> None:
    documents = [
        *memory.notes.documents(),
        memory.notes.documents()[0].model_copy(
            update={"path": "sessions/1.md", "source": "sessions"}
        ),
        memory.notes.documents()[0].model_copy(
            update={"path": "big.md", "size": MAX_FILE_BYTES + 1}
        ),
    ]
    memory.index.sync(documents, memory.notes.read)
    assert memory.sql("SELECT path FROM files ORDER BY path") == [("MEMORY.md",), ("memory/b.md",)]
    assert not memory.index.is_dirty(documents)


def test_an_index_that_is_not_there_answers_and_makes_no_file(tmp_path: Path) -> None:
    memory = MemoryFile(tmp_path, embedder=WordEmbedder())
    assert memory.search("anything") == []
    status = memory.index.status([])
    assert (status.exists, status.dirty, status.files) == (False, False, 0)
    assert (status.provider, status.model) == ("fake", "words")
    memory.notes["MEMORY.md"] = "x"
    assert memory.index.is_dirty(memory.notes.documents())
    assert list(tmp_path.iterdir()) == []
    memory.close()


def test_the_status_says_what_there_is(tmp_path: Path, embedder: WordEmbedder) -> None:
    settings = MemorySettings(sources=["memory", "sessions"])
    texts = {**NOTES, "sessions/1.md": "we spoke of plums"}
    memory = MemoryFile(tmp_path, texts, embedder=embedder, settings=settings)
    memory.sync()
    status = memory.index.status(memory.notes.documents())
    assert (status.exists, status.dirty, status.files, status.chunks) == (True, False, 3, 3)
    assert status.by_source == {
        "memory": {"files": 2, "chunks": 2}, "sessions": {"files": 1, "chunks": 1},
    }  # fmt: skip
    assert (status.cache_entries, status.generation) == (3, 1)
    assert status.bytes == memory.path.stat().st_size
    assert status.last_sync_at is not None
    assert status.last_error is None
    assert status.vector.dims == embedder.dims
    memory.close()


def test_dirty_means_that_a_sync_would_change_something(
    memory: MemoryFile, embedder: WordEmbedder
) -> None:
    memory.sync()
    assert not memory.index.is_dirty(memory.notes.documents())
    memory.notes["MEMORY.md"] = "other"
    assert memory.index.is_dirty(memory.notes.documents())
    memory.sync()
    assert not memory.index.status(memory.notes.documents()).dirty
    for settings, other in (
        (MemorySettings(chunks=ChunkSettings(tokens=100)), embedder),
        (MemorySettings(), WordEmbedder("other model")),
        (MemorySettings(), None),
    ):
        handle = memory.again(embedder=other, settings=settings)
        assert handle.index.is_dirty(memory.notes.documents())
        handle.close()
    # What is asked of a query has no part in how the index is built.
    same = memory.again(
        embedder=embedder, settings=MemorySettings(query=QuerySettings(max_results=9))
    )
    assert not same.index.is_dirty(memory.notes.documents())
    same.close()


@pytest.mark.req("O-030")
def test_a_failing_embedder_gives_way_and_the_index_is_built_anew(tmp_path: Path) -> None:
    wanted, other = WordEmbedder("wanted"), WordEmbedder("other")
    embedders = FallbackEmbedder(wanted, other)
    memory = MemoryFile(tmp_path, NOTES, embedder=embedders)
    memory.sync()
    wanted.failure = EmbeddingFailed("the key was revoked", passing=False)
    memory.notes["memory/c.md"] = "plums"
    report = memory.sync()
    assert (report["reindexed"], report["model"]) == (True, "other")
    assert report["fell_back"] == "the key was revoked"
    assert memory.sql("SELECT DISTINCT model FROM chunks") == [("other",)]
    assert memory.paths("plums")[0] == "memory/c.md"
    # Both fail: words still work, and the vectors that were paid for are kept.
    other.failure = EmbeddingFailed("gone too", passing=True)
    memory.notes["memory/d.md"] = "figs"
    report = memory.sync()
    assert (report["provider"], report["model"]) == ("none", "fts-only")
    assert memory.paths("figs") == ["memory/d.md"]
    assert memory.sql("SELECT model, count(*) FROM embedding_cache GROUP BY model") == [
        ("other", 3), ("wanted", 2),
    ]  # fmt: skip
    memory.close()


def test_a_failing_embedder_without_another_fails_the_sync_and_is_remembered(
    memory: MemoryFile, embedder: WordEmbedder
) -> None:
    memory.sync()
    embedder.failure = EmbeddingFailed("no route", passing=True)
    memory.notes["MEMORY.md"] = "plums"
    with pytest.raises(EmbeddingFailed, match="no route"):
        memory.sync()
    status = memory.index.status(memory.notes.documents())
    assert status.dirty
    assert "no route" in str(status.last_error)
    assert status.last_sync_at is not None
    assert "MEMORY.md" in memory.paths("apples")
    embedder.failure = None
    memory.sync()
    assert memory.index.status(None).last_error is None


@pytest.mark.parametrize(
    ("limit", "value"), [("LOT_TEXTS", 2), ("LOT_FILES", 2), ("LOT_CHARACTERS", 10)]
)
def test_vectors_are_asked_for_in_lots(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: str, value: int
) -> None:
    embedder = WordEmbedder()
    lots: list[int] = []
    really = embedder.embed

    def embed(texts: Sequence[str]) -> list[list[float]]:
        lots.append(len(texts))
        return really(texts)

    monkeypatch.setattr(embedder, "embed", embed)
    monkeypatch.setattr(sync, limit, value)
    memory = MemoryFile(tmp_path, {f"{n}.md": f"text{n}" for n in range(5)}, embedder=embedder)
    memory.sync()
    assert sorted(lots) == [1, 2, 2]
    memory.close()


@pytest.mark.parametrize("trouble", [RuntimeError("a defect"), Driver.OperationalError("no such")])
def test_trouble_in_the_middle_of_a_file_leaves_none_of_it_and_is_told(
    tmp_path: Path, trouble: Exception
) -> None:
    moments: list[str] = []
    failing: list[Exception] = []

    def at(moment: str) -> None:
        moments.append(moment)
        if failing and moment == "before a file is committed":
            raise failing[0]

    memory = MemoryFile(tmp_path, {"a.md": "old"}, at=at)
    report = memory.sync()
    assert 0 <= int(str(report["duration_ms"])) < 60_000
    file_moments = [one for one in moments if "file" in one]
    assert file_moments == ["before a file is committed", "after a file was committed"]
    memory.notes["a.md"] = "new"
    failing.append(trouble)
    with pytest.raises(type(trouble), match=str(trouble)):
        memory.sync()
    assert memory.sql("SELECT text FROM chunks") == [("old",)]
    failing.clear()
    memory.sync()
    assert memory.sql("SELECT text FROM chunks") == [("new",)]
    memory.close()
