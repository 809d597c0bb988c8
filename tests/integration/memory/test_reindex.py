"""Building an index anew: what asks for it, what is kept, and that readers never notice."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.domain.memory import ChunkSettings, MemorySettings
from holdfast.memory import locks
from holdfast.memory.connection import Driver
from holdfast.memory.locks import MemoryBusy
from holdfast.memory.swap import restore, swap
from holdfast.memory.writer import FAST_REINDEX
from tests.support.memory_file import MemoryFile, Notes, WordEmbedder
from tests.support.memory_process import NEW, OLD

ROOT = Path(__file__).resolve().parents[3]
INDEX_FILES = [f"agent.sqlite{end}" for end in ("", ".lock", ".swap", ".turn")]
NOTES = {"MEMORY.md": "apples are red", "memory/b.md": "pears are green"}


@pytest.fixture
def embedder() -> WordEmbedder:
    return WordEmbedder()


@pytest.fixture
def memory(tmp_path: Path, embedder: WordEmbedder) -> Iterator[MemoryFile]:
    made = MemoryFile(tmp_path, NOTES, embedder=embedder)
    made.sync()
    yield made
    made.close()


def names(memory: MemoryFile) -> list[str]:
    return sorted(one.name for one in memory.path.parent.iterdir())


@pytest.mark.req("O-005", "O-019")
@pytest.mark.parametrize(
    ("settings", "model", "reason"),
    [
        (MemorySettings(chunks=ChunkSettings(tokens=200)), "words", "chunks"),
        (MemorySettings(chunks=ChunkSettings(overlap=20)), "words", "chunks"),
        (MemorySettings(sources=["memory", "sessions"]), "words", "sources"),
        (MemorySettings(), "other", "provider"),
    ],
)
def test_other_settings_ask_for_another_index(
    memory: MemoryFile, settings: MemorySettings, model: str, reason: str
) -> None:
    other = memory.again(embedder=WordEmbedder(model), settings=settings)
    report = other.sync()
    assert (report["reindexed"], report["reason"]) == (True, reason)
    assert other.sync()["reindexed"] is False
    assert other.index.status(None).generation == 2
    other.close()


@pytest.mark.req("O-005", "O-019")
def test_another_model_of_the_same_provider_asks_for_another_index(memory: MemoryFile) -> None:
    embedder = WordEmbedder("other")
    embedder.key = "key of words"
    other = memory.again(embedder=embedder)
    assert other.sync()["reason"] == "model"
    other.close()


@pytest.mark.req("O-019", "O-016")
def test_a_forced_reindex_pays_for_nothing_twice(
    memory: MemoryFile, embedder: WordEmbedder
) -> None:
    before = memory.path.stat().st_ino
    embedder.asked.clear()
    report = memory.sync(force=True)
    assert (report["reason"], report["chunks_embedded"], report["embeddings_cached"]) == (
        "forced", 0, 2,
    )  # fmt: skip
    assert embedder.asked == []
    assert memory.path.stat().st_ino != before
    assert names(memory) == INDEX_FILES


@pytest.mark.req("O-016")
def test_a_handle_sees_the_new_index_at_once(memory: MemoryFile, embedder: WordEmbedder) -> None:
    other = memory.again(embedder=embedder)
    assert other.paths("apples are red") == ["MEMORY.md"]
    memory.notes["MEMORY.md"] = "plums are blue"
    memory.sync(force=True)
    assert other.paths("plums") == ["MEMORY.md"]
    assert other.index.status(None).generation == 2
    other.close()


@pytest.mark.req("O-016")
def test_when_the_second_rename_fails_the_old_index_comes_back(memory: MemoryFile) -> None:
    with pytest.raises(FileNotFoundError):
        swap(memory.path, memory.path.with_name("missing"), lambda _point: None)
    fresh = memory.path.with_name("fresh")
    fresh.touch()
    before = memory.path.stat().st_ino
    with pytest.raises(FileNotFoundError):
        swap(memory.path, fresh, lambda _point: fresh.unlink(missing_ok=True))
    assert memory.path.stat().st_ino == before
    assert memory.paths("apples are red") == ["MEMORY.md"]


def test_a_reindex_that_fails_leaves_the_old_index_and_no_litter(
    memory: MemoryFile, embedder: WordEmbedder
) -> None:
    def broken() -> None:
        raise RuntimeError("a defect")

    embedder.before = broken
    memory.notes["MEMORY.md"] = "plums"
    with pytest.raises(RuntimeError, match="a defect"):
        memory.sync(force=True)
    assert names(memory) == INDEX_FILES
    embedder.before = lambda: None
    assert "MEMORY.md" in memory.paths("apples are red")
    assert "RuntimeError: a defect" in str(memory.index.status(None).last_error)


@pytest.mark.req("O-016")
def test_what_killed_writers_left_behind_is_swept(memory: MemoryFile) -> None:
    litter = [memory.path.with_name(f"agent.sqlite.{end}") for end in ("tmp-1", "backup-2")]
    other = memory.path.with_name("other.sqlite.tmp-3")
    for one in (*litter, other):
        one.touch()
    assert memory.paths("apples are red") == ["MEMORY.md"]
    assert all(one.exists() for one in litter)  # a reader sweeps nothing: a writer may be at work
    memory.sync()
    assert not any(one.exists() for one in litter)
    assert other.exists()


@pytest.mark.req("O-017")
def test_a_backup_without_a_main_file_is_put_back_by_a_reader(memory: MemoryFile) -> None:
    memory.path.rename(memory.path.with_name("agent.sqlite.backup-1"))
    assert memory.paths("apples are red") == ["MEMORY.md"]
    assert memory.path.exists()
    restore(memory.path)
    assert names(memory) == INDEX_FILES


@pytest.mark.parametrize("damage", ["header", "middle", "empty"])
def test_a_damaged_file_is_dirty_and_built_anew(memory: MemoryFile, damage: str) -> None:
    memory.close()
    content = bytearray(memory.path.read_bytes())
    spoilt = {
        "header": b"x" * len(content),
        "middle": bytes(content[:4096]) + b"\xff" * (len(content) - 4096),
        "empty": b"",
    }
    memory.path.write_bytes(spoilt[damage])
    assert memory.search("apples") == []
    assert memory.index.is_dirty(memory.notes.documents())
    assert memory.index.status(memory.notes.documents()).dirty
    report = memory.sync()
    assert report["reindexed"]
    assert report["reason"] == ("new" if damage == "empty" else "damaged")
    assert memory.paths("apples are red") == ["MEMORY.md"]


@pytest.mark.req("O-018")
def test_a_test_may_ask_for_a_quick_reindex_in_place(
    memory: MemoryFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = memory.path.stat().st_ino
    monkeypatch.setenv(FAST_REINDEX, "1")
    memory.notes["MEMORY.md"] = "plums are blue"
    assert memory.sync(force=True)["reindexed"] is True
    assert memory.path.stat().st_ino == before
    assert memory.paths("plums") == ["MEMORY.md"]
    other = memory.again(embedder=WordEmbedder("other", dims=4))
    assert other.sync()["reindexed"] is True
    assert other.sql("SELECT count(*) FROM chunks_vec", vectors=True) == [(2,)]
    assert other.sql("SELECT DISTINCT model FROM chunks") == [("other",)], "nothing old is left"
    other.close()


def test_there_is_one_writer_at_a_time(memory: MemoryFile, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(locks, "WRITER_TIMEOUT_S", 0.05)
    with locks.writing(memory.path), pytest.raises(MemoryBusy):
        memory.sync()
    assert memory.sync()["files"] == 2


def test_writers_of_several_threads_take_turns(memory: MemoryFile, embedder: WordEmbedder) -> None:
    handles = [memory.again(embedder=embedder) for _ in range(3)]
    reports: list[dict[str, object]] = []
    threads = [
        threading.Thread(target=lambda one=one: reports.append(one.sync(force=True)))
        for one in handles
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [report["files"] for report in reports] == [2, 2, 2]
    assert memory.index.status(None).generation == 4
    for handle in handles:
        handle.close()


@pytest.mark.req("O-016")
def test_who_searches_during_a_swap_sees_the_old_or_the_new(tmp_path: Path) -> None:
    """In another process and in another thread, over many swaps."""
    memory = MemoryFile(tmp_path, OLD)
    memory.sync()
    command = [sys.executable, "-m", "tests.support.memory_process", "search", str(memory.path)]
    child = subprocess.Popen(
        command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert child.stdin is not None
    assert child.stdout is not None
    assert child.stdout.readline() == "searching\n"
    seen, ended = set[tuple[str, ...]](), threading.Event()
    other = memory.again()

    def look() -> None:
        while not ended.is_set():
            hits = other.index.search("apple", limit=50, min_score=None)
            seen.add(tuple(sorted(hit.snippet.split()[1] for hit in hits)))

    thread = threading.Thread(target=look)
    thread.start()
    for number in range(20):
        memory.notes = Notes(NEW if number % 2 == 0 else OLD)
        memory.sync(force=True)
    ended.set()
    thread.join()
    said, _ = child.communicate(timeout=120)
    assert child.returncode == 0
    assert seen <= {("pie",) * 8, ("tart",) * 8}
    assert set(json.loads(said)) <= {"pie:8", "tart:8"}
    assert sorted(memory.paths("apple pie")) == sorted(other.paths("apple pie"))
    other.close()
    memory.close()


def test_a_reader_waits_while_a_writer_commits(memory: MemoryFile) -> None:
    connection = Driver.connect(memory.path, isolation_level=None, check_same_thread=False)
    connection.execute("BEGIN EXCLUSIVE")
    threading.Timer(0.05, lambda: connection.execute("COMMIT")).start()
    assert memory.paths("apples are red") == ["MEMORY.md"]
    connection.close()


@pytest.mark.req("O-016")
def test_the_new_index_is_built_beside_the_old_and_swapped_by_two_renames(
    tmp_path: Path,
) -> None:
    uuid = r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"
    seen: dict[str, list[str]] = {}

    def at(point: str) -> None:
        ours = [name for name in names(watched) if not name.endswith("-journal")]
        seen[point] = [name for name in ours if name not in INDEX_FILES[1:]]

    watched = MemoryFile(tmp_path, NOTES, embedder=WordEmbedder(), at=at)
    watched.sync()
    watched.sync(force=True)
    main, fresh = seen["before the swap"]
    assert main == "agent.sqlite"
    assert re.fullmatch(rf"agent\.sqlite\.tmp-{uuid}", fresh)
    backup, same = seen["between the renames"]
    assert same == fresh
    assert re.fullmatch(rf"agent\.sqlite\.backup-{uuid}", backup)
    assert seen["before the backup is deleted"] == [main, backup]
    assert names(watched) == INDEX_FILES
    watched.close()


@pytest.mark.req("O-016")
def test_vectors_that_were_kept_for_searches_are_forgotten_at_a_swap(tmp_path: Path) -> None:
    settings = MemorySettings(vectors=False)
    memory = MemoryFile(tmp_path, NOTES, embedder=WordEmbedder(), settings=settings)
    memory.sync()
    assert memory.search("apples are red")[0].vector_score == pytest.approx(1, abs=0.01)
    memory.notes["MEMORY.md"] = "plums are blue"
    memory.sync(force=True)
    assert memory.search("plums are blue")[0].vector_score == pytest.approx(1, abs=0.01)
    found = memory.index.search("apples are red", limit=9, min_score=0.0)
    assert sorted(hit.path for hit in found) == sorted(NOTES)
    memory.close()


@pytest.mark.req("O-005", "O-019")
@pytest.mark.parametrize("field", ["provider", "key"])
def test_another_provider_or_address_of_the_same_model_asks_for_another_index(
    memory: MemoryFile, field: str
) -> None:
    embedder = WordEmbedder()
    setattr(embedder, field, "another")
    other = memory.again(embedder=embedder)
    assert (other.sync()["reason"], other.sync()["reindexed"]) == ("provider", False)
    other.close()


@pytest.mark.req("O-016")
def test_the_backup_is_deleted_by_the_swap(memory: MemoryFile) -> None:
    fresh = memory.path.with_name("fresh")
    fresh.write_bytes(memory.path.read_bytes())
    swap(memory.path, fresh, lambda _point: None)
    assert names(memory) == INDEX_FILES
