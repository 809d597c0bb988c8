"""Memories follow their sources: files that are still, sessions that said much, the clock."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from temporalio.service import RPCError, RPCStatusCode

from holdfast.domain.errors import NotFound
from holdfast.memory.pool import MemoryPool
from holdfast.settings.config import Config
from holdfast.storage.database.opening import OpenStore
from holdfast.storage.projects import project_file, projects
from holdfast.storage.sessions import messages
from holdfast.storage.upkeep import removal
from tests.support.servers.memory_service import configured
from tests.support.step_runner import StepRunner
from worker.memories import SESSIONS_EVERY_S, MemoryWatch

FILE = """
version: 1
project: watched
primary: {model: "scripted:echo"}
"""


class Watched:
    """A project whose memory is looked after, with a clock that a test moves."""

    def __init__(self, store: OpenStore, folder: Path, config: Config) -> None:
        self.shop = StepRunner(store, folder, FILE)
        self.pool = MemoryPool(store, store.home, lambda: config)
        self.now = 1000.0
        self.asked: list[str] = []
        self.away = False
        self.watch = self.fresh()

    def fresh(self) -> MemoryWatch:
        return MemoryWatch(self.shop.store, self.pool, self.ask, clock=lambda: self.now)

    async def ask(self, project_id: str) -> None:
        if self.away:
            raise RPCError("away", RPCStatusCode.UNAVAILABLE, b"")
        assert project_id == self.shop.project_id
        self.asked.append(project_id)

    def settings(self, text: str) -> None:
        """Load the project file with these memory settings."""
        path = self.shop.folder / ".holdfast" / "project.yaml"
        path.write_text(f"{FILE}memory: {text}\n")
        loaded = project_file.load(self.shop.folder)
        operator = self.shop.operator_id
        self.shop.store.write(lambda db: projects.load(db, operator, loaded))

    def note(self, name: str, words: str = "words\n") -> Path:
        path = self.shop.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(words)
        return path

    def sync(self) -> None:
        """What the workflow would do."""
        project = self.shop.store.read(lambda db: projects.by_id(db, self.shop.project_id))
        with self.pool.open(project) as memory:
            memory.sync()

    async def later(self, seconds: float = 0.0) -> int:
        """Look again after some time; how often a sync was asked for since the last call."""
        self.now += seconds
        await self.watch.look()
        asked, self.asked = len(self.asked), []
        return asked


@pytest.fixture
def watched(sqlite_store: OpenStore, tmp_path: Path) -> Iterator[Watched]:
    made = Watched(sqlite_store, tmp_path / "p", configured())
    yield made
    made.pool.close()


def say(watched: Watched, count: int, session_id: str = "") -> None:
    session = session_id or watched.shop.session_id
    for number in range(count):
        watched.shop.store.write(
            lambda db, number=number: messages.append(  # type: ignore[misc]
                db, session, role="operator", content=f"message {number}"
            )
        )


@pytest.mark.req("O-020", "O-021", "O-023")
async def test_a_change_is_taken_when_it_has_been_still_for_the_debounce_time(
    watched: Watched,
) -> None:
    assert await watched.later() == 0, "an empty memory is no change"
    note = watched.note("memory/deep/note.md")
    assert await watched.later(1.0) == 0
    note.write_text("more words\n")
    assert await watched.later(1.0) == 0, "it is still being written"
    assert await watched.later(1.4) == 0
    assert await watched.later(0.1) == 1
    assert await watched.later(60.0) == 0, "once"
    note.unlink()
    assert [await watched.later(1.0), await watched.later(1.5)] == [0, 1]


@pytest.mark.req("O-021")
async def test_a_change_that_settles_is_looked_at_every_tenth_of_a_second(
    watched: Watched,
) -> None:
    await watched.later()
    assert watched.watch.pause_s(0.001) == 1.0
    watched.note("MEMORY.md")
    await watched.later(1.0)
    assert watched.watch.pause_s(0.001) == 0.1
    assert watched.watch.pause_s(0.5) == 5.0, "a look takes a tenth of the time at most"
    await watched.later(1.5)
    assert watched.watch.pause_s(0.001) == 1.0


@pytest.mark.req("O-020")
@pytest.mark.parametrize("name", ["MEMORY.md", "memory.md", "memory/a/b.md", "docs/x/y.md"])
async def test_what_is_watched(watched: Watched, name: str) -> None:
    watched.settings("{extra_paths: [docs], sync: {watch_debounce_ms: 0}}")
    await watched.later()
    watched.note(name)
    assert await watched.later(1.0) == 1


@pytest.mark.req("O-022")
@pytest.mark.parametrize("name", ["README.md", "memory/a.txt", "memory/.git/a.md",
                                  "memory/node_modules/p/a.md", "memory/.venv/a.md"])  # fmt: skip
async def test_what_is_not_watched(watched: Watched, name: str) -> None:
    watched.settings("{sync: {watch_debounce_ms: 0}}")
    await watched.later()
    watched.note(name)
    assert await watched.later(1.0) == 0


@pytest.mark.req("O-021")
async def test_what_is_there_at_the_start_counts_only_when_it_is_not_indexed(
    watched: Watched,
) -> None:
    watched.note("MEMORY.md")
    assert await watched.later() == 1
    watched.sync()
    watched.watch = watched.fresh()
    assert [await watched.later(), await watched.later(60.0)] == [0, 0]


async def test_a_memory_that_is_switched_off_or_changed_is_followed(watched: Watched) -> None:
    watched.settings("{enabled: false}")
    watched.note("MEMORY.md")
    assert [await watched.later(), await watched.later(60.0)] == [0, 0]
    watched.settings("{chunks: {tokens: 200}}")
    assert await watched.later() == 1
    watched.sync()
    watched.settings("{chunks: {tokens: 300}}")
    assert await watched.later() == 1, "it must be built anew"


async def test_a_folder_that_goes_away_leaves_its_memory_as_it_was(watched: Watched) -> None:
    watched.note("memory/a.md")
    await watched.later()
    watched.sync()
    away = watched.shop.folder.with_name("unmounted")
    watched.shop.folder.rename(away)
    assert [await watched.later(1.0), await watched.later(60.0)] == [0, 0]
    with pytest.raises(NotFound, match="folder is not there"):
        watched.sync()
    away.rename(watched.shop.folder)
    assert [await watched.later(1.0), await watched.later(60.0)] == [0, 0], "it is as it was"


@pytest.mark.req("O-025")
async def test_a_memory_is_synced_by_the_clock_where_that_is_wanted(watched: Watched) -> None:
    watched.settings("{sync: {interval_minutes: 5, watch: false}}")
    assert await watched.later() == 0
    assert await watched.later(299.0) == 0
    assert await watched.later(1.0) == 1
    assert await watched.later(299.0) == 0
    assert await watched.later(1.0) == 1


@pytest.mark.req("O-035")
async def test_a_session_that_begins_has_its_memory_brought_up_to_date(watched: Watched) -> None:
    watched.settings("{sync: {watch: false}}")
    await watched.later()
    watched.note("MEMORY.md")
    assert await watched.later(60.0) == 0, "nobody watches"
    watched.shop.session()
    assert await watched.later(1.0) == 1
    watched.sync()
    watched.shop.session()
    assert await watched.later(1.0) == 0, "nothing is new"
    watched.settings("{sync: {watch: false, on_session_start: false}}")
    await watched.later()
    watched.note("MEMORY.md", "other words\n")
    watched.shop.session()
    assert await watched.later(1.0) == 0


@pytest.mark.req("O-024", "O-029")
async def test_sessions_are_synced_when_they_said_much(watched: Watched) -> None:
    watched.settings("{sources: [sessions], sync: {session_messages: 5}}")
    say(watched, 1)
    assert await watched.later() == 1, "at the start all counts"
    watched.sync()
    say(watched, 4)
    assert await watched.later(SESSIONS_EVERY_S) == 0
    say(watched, 1)
    assert await watched.later(SESSIONS_EVERY_S - 1) == 0, "every five seconds is enough"
    assert await watched.later(1.0) == 1


@pytest.mark.req("O-024")
async def test_sessions_are_looked_at_every_five_seconds(watched: Watched) -> None:
    watched.settings("{sources: [sessions], sync: {session_messages: 1}}")
    await watched.later()
    say(watched, 1)
    assert await watched.later(4.9) == 0
    assert await watched.later(0.1) == 1


async def test_a_purged_session_is_forgotten_soon(watched: Watched) -> None:
    watched.settings("{sources: [sessions]}")
    say(watched, 1)
    await watched.later()
    watched.sync()
    removal.purge(watched.shop.store, watched.shop.session_id)
    assert await watched.later(SESSIONS_EVERY_S) == 1


async def test_what_temporal_could_not_take_is_asked_again(watched: Watched) -> None:
    watched.note("MEMORY.md")
    watched.away = True
    assert await watched.later() == 0
    watched.away = False
    assert await watched.later(1.0) == 1
