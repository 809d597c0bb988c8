"""A memory's index goes from the machine that builds it to those that read it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

import pytest

from holdfast.domain.memory import MemoryStatus
from holdfast.memory import sharing
from holdfast.memory.pool import MemoryPool
from holdfast.settings.config import parse_config
from holdfast.storage.database.blobs import BlobMissing
from holdfast.storage.database.opening import OpenStore
from holdfast.storage.database.tables import Project
from holdfast.storage.database.tables_hosts import MemoryIndexRow
from holdfast.storage.hosts import memory_indexes
from holdfast.storage.projects import operators, project_file, projects

CONFIG = parse_config(b'[memory]\nembedding = "none"\n', Path("config.toml"))


class Machine:
    """A home of its own; it sees the project's folder unless that is taken away."""

    def __init__(self, store: OpenStore, home: Path, host_id: str | None) -> None:
        self.pool = MemoryPool(store, home, lambda: CONFIG, host_id=lambda: host_id)
        self.home = home

    def sync(self, project: Project) -> None:
        """What the step of a sync does."""
        with self.pool.open(project) as memory:
            memory.sync()
        self.pool.share(project)

    def found(self, project: Project, words: str) -> list[str]:
        """The snippets that answer."""
        with self.pool.open(project) as memory:
            return [hit.snippet for hit in memory.search(words, limit=3, min_score=None)]

    def status(self, project: Project) -> tuple[MemoryStatus, list[str]]:
        with self.pool.open(project) as memory:
            return memory.status(), memory.warnings()


class Fleet:
    """A project, a machine that builds its index, another one, and an API that is on no machine."""

    def __init__(self, store: OpenStore, folder: Path) -> None:
        self.store, self.folder = store, folder / "project"
        self.first = Machine(store, folder / "first", "first")
        self.second = Machine(store, folder / "second", "second")
        self.api = Machine(store, folder / "api", None)
        (self.folder / "memory").mkdir(parents=True)
        (self.folder / ".holdfast").mkdir()
        text = "version: 1\nproject: shared\nprimary: {model: 'scripted:echo'}\n"
        (self.folder / ".holdfast" / "project.yaml").write_text(text)
        operator = store.write(lambda db: operators.add(db, "alice").id)
        loaded = project_file.load(self.folder)
        self.project = store.write(lambda db: projects.load(db, operator, loaded)[0])

    def note(self, name: str, words: str) -> None:
        (self.folder / "memory" / f"{name}.md").write_text(words)

    def row(self) -> MemoryIndexRow:
        found = self.store.read(lambda db: memory_indexes.find(db, self.project.id))
        assert found is not None
        return found

    def parts(self) -> list[str]:
        return self.store.read(lambda db: memory_indexes.parts(db, self.project.id))


@pytest.fixture
def fleet(postgres_store: OpenStore, tmp_path: Path) -> Fleet:
    return Fleet(postgres_store, tmp_path)


def test_an_index_is_read_where_it_was_not_built_and_follows_the_builder(fleet: Fleet) -> None:
    fleet.note("one", "the heron waits")
    fleet.first.sync(fleet.project)
    # Nobody else sees the folder.
    fleet.folder.rename(fleet.folder.with_name("elsewhere"))
    for reader in (fleet.api, fleet.second):
        assert "heron" in reader.found(fleet.project, "heron")[0]
        assert reader.status(fleet.project)[1] == []
    fleet.folder.with_name("elsewhere").rename(fleet.folder)
    fleet.note("two", "the kingfisher dives")
    fleet.first.sync(fleet.project)
    assert "kingfisher" in fleet.api.found(fleet.project, "kingfisher")[0]


def test_an_index_that_did_not_change_is_not_shared_again(fleet: Fleet) -> None:
    fleet.note("one", "the heron waits")
    for _ in range(2):
        fleet.first.sync(fleet.project)
    assert fleet.row().generation == 1


def test_a_machine_that_goes_on_builds_on_what_the_other_shared(fleet: Fleet) -> None:
    fleet.note("one", "the heron waits")
    fleet.first.sync(fleet.project)
    fleet.note("two", "the kingfisher dives")
    with fleet.second.pool.open(fleet.project) as memory:
        assert memory.sync().files_changed == 1
    fleet.second.pool.share(fleet.project)
    assert (fleet.row().host_id, fleet.row().generation) == ("second", 2)
    assert "kingfisher" in fleet.first.found(fleet.project, "kingfisher")[0]


def test_pieces_that_did_not_change_are_not_stored_again_and_old_ones_go(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sharing, "PIECE_BYTES", 4096)
    for number in range(60):
        fleet.note(f"n{number}", f"note {number} " + "of many words " * 40)
    fleet.first.sync(fleet.project)
    before = fleet.parts()
    fleet.note("n7", "the heron waits")
    fleet.first.sync(fleet.project)
    after = fleet.parts()
    assert len(set(before) & set(after)) > len(before) / 2
    gone = set(before) - set(after)
    assert gone
    assert not any(fleet.store.blobs.exists(one) for one in gone)
    assert "heron" in fleet.api.found(fleet.project, "heron")[0]


def test_a_reader_whose_pieces_are_not_there_goes_on_with_the_index_that_it_has(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    fleet.note("one", "the heron waits")
    fleet.first.sync(fleet.project)
    assert fleet.api.found(fleet.project, "heron")
    fleet.note("two", "the kingfisher dives")
    fleet.first.sync(fleet.project)

    def gone(blob_id: str) -> BinaryIO:
        raise BlobMissing(blob_id)

    with monkeypatch.context() as patched:
        patched.setattr(fleet.store.blobs, "open", gone)
        assert fleet.api.found(fleet.project, "heron")
        assert fleet.api.found(fleet.project, "kingfisher") == []
    assert fleet.api.found(fleet.project, "kingfisher")
    assert [path.name for path in (fleet.api.home / "memory").glob("*.tmp-*")] == []


def test_an_index_that_is_too_large_is_not_shared_and_says_so(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sharing, "SHARED_BYTES_MAX", 1024)
    fleet.note("one", "the heron waits")
    fleet.first.sync(fleet.project)
    assert fleet.api.found(fleet.project, "heron") == []
    assert "too large to be shared" in fleet.api.status(fleet.project)[1][0]
    assert fleet.parts() == []


def test_only_the_machine_that_builds_it_says_that_its_index_is_up_to_date(fleet: Fleet) -> None:
    def dirty(machine: Machine) -> bool:
        with machine.pool.open(fleet.project) as memory:
            return memory.is_dirty()

    fleet.note("one", "the heron waits")
    fleet.first.sync(fleet.project)
    assert not dirty(fleet.first)
    assert dirty(fleet.second)
    assert not fleet.second.status(fleet.project)[0].dirty


@pytest.mark.parametrize("at", ["before the file is shared", "before it is marked"])
def test_a_builder_that_dies_while_it_shares_shares_it_again(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch, at: str
) -> None:
    def die(*_: object) -> None:
        raise KeyboardInterrupt

    fleet.note("one", "the heron waits")
    name = "_pieces" if at == "before the file is shared" else "_write_mark"
    _dies(fleet, monkeypatch, name, die)
    fleet.first.sync(fleet.project)
    assert "heron" in fleet.api.found(fleet.project, "heron")[0]
    assert not list((fleet.first.home / "memory").glob("*.tmp-*"))


def _dies(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch, name: str, die: Callable[..., None]
) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(sharing, name, die)
        with pytest.raises(KeyboardInterrupt):
            fleet.first.sync(fleet.project)


def test_with_a_file_of_sqlite_nothing_is_shared(sqlite_store: OpenStore, tmp_path: Path) -> None:
    fleet = Fleet(sqlite_store, tmp_path)
    fleet.note("one", "the heron waits")
    fleet.first.sync(fleet.project)
    assert fleet.store.read(lambda db: memory_indexes.find(db, fleet.project.id)) is None
    assert fleet.api.found(fleet.project, "heron") == []
