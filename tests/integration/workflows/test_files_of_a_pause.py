"""Who pauses and goes on at once finds the checkpoint's files saved all the same."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from api.routes import checkpoints as routes
from holdfast.domain.commands import Answer
from holdfast.storage.database.opening import OpenStore
from holdfast.storage.database.tables import Operator, SessionRow
from holdfast.storage.database.tables_history import Checkpoint
from holdfast.storage.moves import checkpoints
from tests.support.workflow_double import WorkflowDouble


class Sleeps:
    """Stands in for asyncio in the route: saves the files at one of its looks, without waiting."""

    def __init__(self, store: OpenStore, checkpoint_id: str, *, at_look: int, note: str) -> None:
        self.looks = 0
        self._store, self._checkpoint_id = store, checkpoint_id
        self._at_look, self._note = at_look, note

    async def sleep(self, _seconds: float) -> None:
        self.looks += 1
        if self.looks == self._at_look:
            tree = None if self._note else "a" * 40
            await asyncio.to_thread(
                self._store.write,
                lambda db: checkpoints.set_tree(db, self._checkpoint_id, tree, self._note),
            )


def _paused(workflow: WorkflowDouble, monkeypatch: pytest.MonkeyPatch) -> Checkpoint:
    """A pause point whose files are not saved yet; the clock stands, for a slow machine counts."""
    session = workflow.session()
    workflow.begin(session)
    point = workflow.pause(session)
    monkeypatch.setattr(routes, "now_ms", lambda: point.created_at)
    return point


@pytest.mark.req("K-066")
@pytest.mark.parametrize("note", ["", "the folder is too big"])
async def test_it_is_waited_for_until_the_files_are_saved_or_said_not_to_be(
    sqlite_store: OpenStore, monkeypatch: pytest.MonkeyPatch, note: str
) -> None:
    point = _paused(WorkflowDouble(sqlite_store), monkeypatch)
    sleeps = Sleeps(sqlite_store, point.id, at_look=5, note=note)
    monkeypatch.setattr(routes, "asyncio", sleeps)
    await routes._files_saved(sqlite_store, point.session_id, point.id)
    assert sleeps.looks == 5


@pytest.mark.req("K-066")
async def test_it_is_not_waited_for_ever(
    sqlite_store: OpenStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    point = _paused(WorkflowDouble(sqlite_store), monkeypatch)
    sleeps = Sleeps(sqlite_store, point.id, at_look=-1, note="")
    monkeypatch.setattr(routes, "asyncio", sleeps)
    await routes._files_saved(sqlite_store, point.session_id, point.id)
    assert sleeps.looks == routes.FILES_WAIT_MS // routes.FILES_LOOK_MS


class Refused(Exception):
    """Ends the route where it would ask the session."""


class Commands:
    """Says what was saved when the session was asked to go on."""

    def __init__(self, store: OpenStore, checkpoint_id: str) -> None:
        self.tree: str | None = None
        self._store, self._checkpoint_id = store, checkpoint_id

    async def send(self, session: SessionRow, *_: object) -> Answer:
        point = self._store.read(lambda db: checkpoints.get(db, session.id, self._checkpoint_id))
        self.tree = point.tree
        raise Refused


@pytest.mark.req("K-066")
async def test_a_session_goes_on_only_after_its_files_are_saved(
    sqlite_store: OpenStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    workflow = WorkflowDouble(sqlite_store)
    point = _paused(workflow, monkeypatch)
    monkeypatch.setattr(routes, "asyncio", Sleeps(sqlite_store, point.id, at_look=3, note=""))
    commands: Any = Commands(sqlite_store, point.id)
    operator = Operator(id=workflow.operator_id, name="anybody")
    with pytest.raises(Refused):
        await routes.resume_checkpoint(
            workflow.row(point.session_id), point.id, operator, commands, sqlite_store, "command"
        )
    assert commands.tree == "a" * 40
