"""The memories that a process has open: which are kept, which are let go, and what they say."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from holdfast.memory import pool as pools
from holdfast.memory.index import MemoryIndex
from holdfast.memory.pool import MemoryPool
from holdfast.memory.project_memory import GONE
from holdfast.settings.config import Config, parse_config
from holdfast.storage.database.opening import OpenStore
from holdfast.storage.database.tables import Project
from holdfast.storage.projects import operators, project_file, projects
from tests.stub.openai_stub import OpenAIStub

WORDS_ONLY = b'[memory]\nembedding = "none"\n'


class Projects:
    """Projects of one operator, each with a note, and the pool of their memories."""

    def __init__(self, store: OpenStore, folder: Path) -> None:
        self.store, self.folder = store, folder
        self.config = parse_config(WORDS_ONLY, Path("config.toml"))
        self.pool = MemoryPool(store, store.home, self.current)
        self.operator_id = store.write(lambda db: operators.add(db, "alice").id)

    def current(self) -> Config:
        return self.config

    def project(self, name: str, memory: str = "{}") -> Project:
        folder = self.folder / name
        (folder / "memory").mkdir(parents=True)
        (folder / "memory" / "note.md").write_text(f"the note of {name}")
        (folder / ".holdfast").mkdir()
        text = f"version: 1\nproject: {name}\nprimary: {{model: 'scripted:echo'}}\n"
        text += f"memory: {memory}\n"
        (folder / ".holdfast" / "project.yaml").write_text(text)
        loaded = project_file.load(folder)
        return self.store.write(lambda db: projects.load(db, self.operator_id, loaded)[0])

    def index_of(self, project: Project) -> object:
        with self.pool.open(project) as memory:
            return memory.index


@pytest.fixture
def known(sqlite_store: OpenStore, tmp_path: Path) -> Projects:
    return Projects(sqlite_store, tmp_path)


def test_a_memory_stays_open_until_the_pool_is_closed_or_its_settings_change(
    known: Projects,
) -> None:
    project = known.project("one")
    first = known.index_of(project)
    assert known.index_of(project) is first
    known.config = parse_config(b'[memory]\nembedding = "none"\ndirectory = "m2"\n', Path("c"))
    second = known.index_of(project)
    assert second is not first
    known.pool.close()
    assert known.index_of(project) is not second


def test_the_memory_that_was_used_longest_ago_is_let_go(
    known: Projects, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pools, "OPEN_MAX", 2)
    one, two, three = (known.project(name) for name in ("one", "two", "three"))
    first, second = known.index_of(one), known.index_of(two)
    assert known.index_of(one) is first, "two stay open"
    known.index_of(three)
    assert known.index_of(one) is first
    assert known.index_of(two) is not second


def test_a_memory_that_is_let_go_is_closed_once_nobody_uses_it(
    known: Projects, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed: list[object] = []
    monkeypatch.setattr(MemoryIndex, "close", lambda index: closed.append(index))
    project = known.project("one")
    index = known.index_of(project)
    assert closed == []
    with known.pool.open(project):
        known.pool.close()
        assert closed == []
    assert closed == [index]


def test_a_memory_of_sessions_alone_misses_no_folder(known: Projects) -> None:
    project = known.project("one", memory="{sources: [sessions]}")
    shutil.rmtree(project.path)
    with known.pool.open(project) as memory:
        assert memory.warnings() == []
    known.pool.close()


def test_a_sync_tells_how_far_it_is_and_a_missing_folder_is_said(known: Projects) -> None:
    project = known.project("one")
    told: list[tuple[int, int]] = []

    def tell(done: int, of: int) -> None:
        told.append((done, of))

    with known.pool.open(project) as memory:
        assert memory.sync(progress=tell).files_changed == 1
        assert told[-1] == (1, 1)
        assert memory.warnings() == []
        shutil.rmtree(project.path)
        assert memory.warnings() == [GONE]
    known.pool.close()


def test_an_index_of_another_embedder_is_named_until_it_is_built_anew(known: Projects) -> None:
    project = known.project("one")
    with OpenAIStub() as stub:

        def choose(model: str) -> None:
            said = f'[providers.a]\ndriver = "openai"\nbase_url = "{stub.base_url}"\n'
            said += f'[memory]\nembedding = "a:{model}"\n'
            known.config = parse_config(said.encode(), Path("config.toml"))

        choose("first")
        with known.pool.open(project) as memory:
            assert memory.warnings() == []
            memory.sync()
            assert memory.warnings() == []
        choose("second")
        with known.pool.open(project) as memory:
            assert memory.warnings() == ["the index was built with a:first instead of a:second"]
            memory.sync()
            assert memory.warnings() == []
        known.pool.close()
