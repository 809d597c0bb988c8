"""A writer killed with SIGKILL, wherever it is, leaves the old index or the new one, whole."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.memory import swap as swaps
from holdfast.memory.swap import restore, swap
from tests.support.memory_file import MemoryFile, Notes, WordEmbedder
from tests.support.memory_process import NEW, OLD

ROOT = Path(__file__).resolve().parents[3]
INDEX_FILES = [f"agent.sqlite{end}" for end in ("", ".lock", ".swap", ".turn")]


@pytest.fixture
def memory(tmp_path: Path) -> Iterator[MemoryFile]:
    made = MemoryFile(tmp_path, OLD, embedder=WordEmbedder("old"))
    made.sync()
    yield made
    made.close()


def kill_at(memory: MemoryFile, what: str, point: str) -> None:
    """Run a writer in a process of its own until it is at the point, and kill it there."""
    command = [sys.executable, "-m", "tests.support.memory_process", what, str(memory.path), point]
    child = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    with child.stdout:
        said = child.stdout.readline()
        child.kill()
        child.wait()
    assert said == f"{point}\n"


def contents(memory: MemoryFile) -> set[str]:
    """What is found, through words and rows alike."""
    handle = memory.again(embedder=WordEmbedder("old"))
    hits = handle.index.search("apple", limit=50, min_score=0.0)
    handle.close()
    texts = {str(text) for [text] in handle.sql("SELECT text FROM chunks")}
    assert {hit.snippet for hit in hits} == texts
    assert handle.sql("PRAGMA integrity_check") == [("ok",)]
    return texts


@pytest.mark.req("O-016", "O-017")
@pytest.mark.parametrize(
    ("point", "survivors"),
    [
        ("inside the embedder", OLD),
        ("before a file is committed", OLD),
        ("after a file was committed", OLD),
        ("before the swap", OLD),
        ("between the renames", OLD),
        ("before the backup is deleted", NEW),
    ],
)
def test_a_reindex_killed_anywhere_leaves_a_whole_index(
    memory: MemoryFile, point: str, survivors: dict[str, str]
) -> None:
    kill_at(memory, "rebuild", point)
    assert contents(memory) == set(survivors.values())
    # And the next writer finishes the work, and sweeps.
    memory.notes = Notes(NEW)
    other = memory.again(embedder=WordEmbedder("new"))
    other.sync()
    other.close()
    assert {str(text) for [text] in memory.sql("SELECT text FROM chunks")} == set(NEW.values())
    assert sorted(one.name for one in memory.path.parent.iterdir()) == INDEX_FILES


@pytest.mark.req("O-013")
def test_what_a_killed_reindex_embedded_is_not_embedded_again(memory: MemoryFile) -> None:
    kill_at(memory, "rebuild", "before the swap")
    memory.notes, embedder = Notes(NEW), WordEmbedder("new")
    other = memory.again(embedder=embedder)
    report = other.sync()
    other.close()
    assert (embedder.asked, report["reindexed"]) == ([], True)
    assert sorted(one.name for one in memory.path.parent.iterdir()) == INDEX_FILES


@pytest.mark.req("O-017")
@pytest.mark.parametrize(
    ("point", "changed"), [("before a file is committed", 0), ("after a file was committed", 1)]
)
def test_a_sync_killed_anywhere_leaves_whole_files(
    memory: MemoryFile, point: str, changed: int
) -> None:
    kill_at(memory, "follow", point)
    texts = contents(memory)
    assert len(texts) == len(OLD)
    assert len(texts & set(NEW.values())) == changed
    counts = "SELECT (SELECT count(*) FROM chunks_fts), (SELECT count(*) FROM chunks_vec)"
    assert memory.sql(counts, vectors=True) == [(len(OLD), len(OLD))]
    memory.notes = Notes(NEW)
    assert memory.sync()["files_changed"] == len(NEW) - changed
    assert contents(memory) == set(NEW.values())


def test_a_new_index_takes_no_journal_of_the_old_one_over_and_is_on_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, fresh = tmp_path / "index.sqlite", tmp_path / "index.sqlite.tmp-1"
    journal = tmp_path / "index.sqlite-journal"
    for one, words in ((path, "old"), (fresh, "new"), (journal, "of the damaged one")):
        one.write_text(words)
    flushed: list[str] = []
    monkeypatch.setattr(
        os, "fsync", lambda file: flushed.append(str(Path(f"/proc/self/fd/{file}").readlink()))
    )
    moments: list[str] = []
    open_files = Path("/proc/self/fd")
    before = len(list(open_files.iterdir()))

    swap(path, fresh, moments.append)
    assert path.read_text() == "new"
    assert [one.name for one in tmp_path.iterdir() if "journal" in one.name] == []
    assert len(moments) == 2
    assert flushed == [str(fresh), str(tmp_path)]
    assert len(list(open_files.iterdir())) == before


def test_a_backup_that_another_reader_put_back_meanwhile_is_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "agent.sqlite"
    looks = iter([[tmp_path / "agent.sqlite.backup-1"], []])
    monkeypatch.setattr(swaps, "backups_of", lambda _: next(looks))
    restore(path)
    assert not path.exists()

    def put_back(_: Path) -> list[Path]:
        (tmp_path / "agent.sqlite.backup-2").write_text("older")
        if looked:
            path.write_text("put back")
        looked.append(path)
        return [tmp_path / "agent.sqlite.backup-2"]

    looked: list[Path] = []
    monkeypatch.setattr(swaps, "backups_of", put_back)
    restore(path)
    assert path.read_text() == "put back"


def test_the_backup_is_put_back_and_never_its_journal(tmp_path: Path) -> None:
    path = tmp_path / "index.sqlite"
    for name in ("backup-1", "backup-1-journal"):
        (tmp_path / f"index.sqlite.{name}").write_text(name)
    restore(path)
    assert path.read_text() == "backup-1"
