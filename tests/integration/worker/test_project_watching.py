"""Project files on disk: taken over when they change, marked when they break."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.domain.ids import new_id
from holdfast.storage.database.engine import Db
from holdfast.storage.database.opening import OpenStore
from holdfast.storage.database.tables import Project
from holdfast.storage.hosts import hosts
from holdfast.storage.log import events
from holdfast.storage.projects import projects
from holdfast.storage.sessions import session_views
from tests.support.step_runner import QUIET, StepRunner
from worker.watching import ProjectFilesWatch


class Watched:
    """A project whose files are looked at."""

    def __init__(self, store: OpenStore, folder: Path) -> None:
        self.shop = StepRunner(store, folder)
        self.watch = ProjectFilesWatch(store, lambda: self.shop.config)
        self.file = folder / ".holdfast" / "project.yaml"

    def project(self) -> Project:
        return self.shop.store.read(
            lambda db: projects.get(db, self.shop.operator_id, self.shop.project_id)
        )

    def told(self) -> list[str]:
        """What the session was told about its project file."""
        found = self.shop.store.read(lambda db: events.after(db, self.shop.session_id, 0, limit=99))
        return [one.data["new_hash"] for one in found if one.kind == "dsl.changed"]

    def stale(self) -> bool:
        shown = self.shop.store.read(lambda db: session_views.view(db, self.shop.state()))
        return bool(shown["dsl_stale"])

    async def write(self, text: str) -> None:
        """Write the file, and let the watch see it twice."""
        self.file.write_text(text)
        await self.watch.look()
        await self.watch.look()


@pytest.fixture
def watched(sqlite_store: OpenStore, tmp_path: Path) -> Watched:
    return Watched(sqlite_store, tmp_path / "p")


@pytest.mark.req("K-126", "K-127")
async def test_a_changed_file_is_for_new_sessions_and_live_ones_are_told_once(
    watched: Watched,
) -> None:
    await watched.watch.look()
    before = watched.project().dsl_hash
    assert watched.told() == []

    await watched.write(QUIET + "description: now with words\n")

    assert watched.project().dsl_hash != before
    assert watched.told() == [watched.project().dsl_hash]
    assert watched.shop.state().dsl_hash == before
    assert watched.stale()
    await watched.write(QUIET + "# only a comment\n" + "description: now with words\n")
    assert len(watched.told()) == 2, "a comment is a change of the content"


async def test_a_broken_file_marks_the_project_until_it_is_mended(watched: Watched) -> None:
    await watched.watch.look()
    before = watched.project().dsl_hash

    await watched.write(QUIET + "no_such_key: 1\n")

    broken = watched.project()
    assert (broken.state, broken.dsl_hash) == ("invalid", before)
    assert broken.error is not None
    assert broken.error["details"]["line"] == 5
    await watched.write(QUIET.replace("scripted:echo", "nowhere:at-all"))
    assert watched.project().state == "invalid"
    await watched.write(QUIET)
    assert (watched.project().state, watched.project().error) == ("ready", None)


async def test_a_file_that_is_still_being_written_is_left_alone(watched: Watched) -> None:
    await watched.watch.look()
    watched.file.write_text("version: 1\nprimary: {mod")
    await watched.watch.look()
    assert watched.project().state == "ready"


async def test_a_folder_of_another_machine_is_not_taken_for_one_that_is_gone(
    postgres_store: OpenStore, tmp_path: Path
) -> None:
    watched = Watched(postgres_store, tmp_path / "p")
    postgres_store.write(lambda db: _register(db, "here"))
    postgres_store.write(lambda db: _register(db, "there"))
    await watched.watch.look()
    (tmp_path / "p").rename(tmp_path / "elsewhere")
    await watched.watch.look()
    await watched.watch.look()
    assert watched.project().state == "ready"


def _register(db: Db, name: str) -> None:
    hosts.register(db, hosts.Seen(new_id(), name, 1, "", f"queue-{name}", "1"))
