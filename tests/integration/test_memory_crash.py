"""A writer killed with SIGKILL, wherever it is, leaves the old index or the new one, whole."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.memory import Notes, Shelf, WordEmbedder
from tests.support.memory_child import NEW, OLD

ROOT = Path(__file__).resolve().parents[2]
INDEX_FILES = [f"agent.sqlite{end}" for end in ("", ".lock", ".swap", ".turn")]


@pytest.fixture
def shelf(tmp_path: Path) -> Iterator[Shelf]:
    made = Shelf(tmp_path, OLD, embedder=WordEmbedder("old"))
    made.sync()
    yield made
    made.close()


def kill_at(shelf: Shelf, what: str, point: str) -> None:
    """Run a writer in a process of its own until it is at the point, and kill it there."""
    command = [sys.executable, "-m", "tests.support.memory_child", what, str(shelf.path), point]
    child = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    with child.stdout:
        said = child.stdout.readline()
        child.kill()
        child.wait()
    assert said == f"{point}\n"


def contents(shelf: Shelf) -> set[str]:
    """What is found, through words and rows alike."""
    handle = shelf.again(embedder=WordEmbedder("old"))
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
    shelf: Shelf, point: str, survivors: dict[str, str]
) -> None:
    kill_at(shelf, "rebuild", point)
    assert contents(shelf) == set(survivors.values())
    # And the next writer finishes the work, and sweeps.
    shelf.notes = Notes(NEW)
    other = shelf.again(embedder=WordEmbedder("new"))
    other.sync()
    other.close()
    assert {str(text) for [text] in shelf.sql("SELECT text FROM chunks")} == set(NEW.values())
    assert sorted(one.name for one in shelf.path.parent.iterdir()) == INDEX_FILES


@pytest.mark.req("O-013")
def test_what_a_killed_reindex_embedded_is_not_embedded_again(shelf: Shelf) -> None:
    kill_at(shelf, "rebuild", "before the swap")
    shelf.notes, embedder = Notes(NEW), WordEmbedder("new")
    other = shelf.again(embedder=embedder)
    report = other.sync()
    other.close()
    assert (embedder.asked, report["reindexed"]) == ([], True)
    assert sorted(one.name for one in shelf.path.parent.iterdir()) == INDEX_FILES


@pytest.mark.req("O-017")
@pytest.mark.parametrize(
    ("point", "changed"), [("before a file is committed", 0), ("after a file was committed", 1)]
)
def test_a_sync_killed_anywhere_leaves_whole_files(shelf: Shelf, point: str, changed: int) -> None:
    kill_at(shelf, "follow", point)
    texts = contents(shelf)
    assert len(texts) == len(OLD)
    assert len(texts & set(NEW.values())) == changed
    counts = "SELECT (SELECT count(*) FROM chunks_fts), (SELECT count(*) FROM chunks_vec)"
    assert shelf.sql(counts, vectors=True) == [(len(OLD), len(OLD))]
    shelf.notes = Notes(NEW)
    assert shelf.sync()["files_changed"] == len(NEW) - changed
    assert contents(shelf) == set(NEW.values())
