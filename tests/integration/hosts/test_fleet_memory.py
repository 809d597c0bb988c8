"""The memory of a project in a fleet: asked where it is not built, and built by who is left."""

from __future__ import annotations

import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from api.memory import Found, Memories
from holdfast.memory.pool import MemoryPool
from holdfast.settings.config import parse_config
from holdfast.storage.database.opening import OpenStore
from holdfast.storage.hosts import memory_indexes
from holdfast.storage.projects import projects
from tests.support.local_worker import until
from tests.support.servers.machines import Fleet

PROJECT = """
primary: {model: 'scripted:echo'}
memory: {embedding: none}
"""


@pytest.fixture
async def fleet(postgres_store: OpenStore, temporal: str, tmp_path: Path) -> AsyncIterator[Fleet]:
    """Two machines on one Postgres and one Temporal; each builds indexes in its own home."""
    async with Fleet(postgres_store, tmp_path, temporal) as made:
        yield made


async def test_an_api_elsewhere_finds_what_was_noted_whichever_machine_is_left(
    fleet: Fleet, tmp_path: Path
) -> None:
    config = parse_config(b'[memory]\nembedding = "none"\n', Path("config.toml"))
    store = fleet.driver.store
    pool = MemoryPool(store, tmp_path / "api", lambda: config)
    memories = Memories(pool, fleet.driver.memories)
    project_id = fleet.driver.project(PROJECT)
    project = store.read(lambda db: projects.by_id(db, project_id))
    notes = Path(project.path) / "memory"
    notes.mkdir()

    def builder() -> str | None:
        row = store.read(lambda db: memory_indexes.find(db, project_id))
        return None if row is None else row.host_id

    async def asked(words: str) -> Found:
        return await memories.search(project, words, limit=3, min_score=None)

    (notes / "one.md").write_text("the heron waits")
    first = await until(builder, "a machine to build the index")
    (notes / "two.md").write_text("the kingfisher dives")
    # Asked over and over: a search waits for what is not indexed yet, but not for long.
    while not (await asked("kingfisher")).items:
        continue
    await _only_other(fleet, first)
    (notes / "three.md").write_text("the bittern booms")
    while not (await asked("bittern")).items:
        continue
    assert builder() != first
    memories.close()


async def _only_other(fleet: Fleet, host_id: str) -> None:
    (machine,) = [one for one in fleet.machines if one.id == host_id]
    await machine.end_worker(signal.SIGKILL)
    machine.host.kill()
