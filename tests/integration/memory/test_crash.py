"""A writer killed with SIGKILL, wherever it is, leaves the old index or the new one, whole."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

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
