"""Sessions as a source of memory: what was said, by whom, and nothing that was taken back."""

from __future__ import annotations

from pathlib import Path

import pytest

from domain.memory import MemorySettings
from memory.index import MemoryIndex
from memory.project_memory import ProjectMemory
from storage import memory_sessions, projects
from storage.opening import OpenStore
from tests.support.desk import Desk

SETTINGS = MemorySettings.model_validate(
    {"sources": ["sessions"], "embedding": "none", "sync": {"session_messages": 3}}
)


@pytest.fixture
def desk(either_store: OpenStore) -> Desk:
    return Desk(either_store)


def paths(desk: Desk) -> list[str]:
    project = desk.store.read(lambda db: projects.by_id(db, desk.project_id))
    return [one.path for one in desk.store.read(lambda db: memory_sessions.listed(db, project))]


def text(desk: Desk, session_id: str) -> str:
    path = memory_sessions.path_of(session_id)
    return desk.store.read(lambda db: memory_sessions.text(db, path))


def test_a_session_is_a_document_of_what_was_said(desk: Desk) -> None:
    session = desk.session()
    desk.session()  # nothing was said in this one
    desk.say(session, "Where is\nthe kettle?")
    desk.say(session, "In the pantry.", "primary")
    desk.say(session, '{"exit_code": 0}', "tool")
    desk.say(session, "my api_key=abcdefghijklmnop")
    assert paths(desk) == [f"sessions/{session}.md"]
    said = (
        "operator: Where is the kettle?\nprimary: In the pantry.\noperator: my api_key=[redacted]"
    )
    assert text(desk, session) == said


def test_what_was_taken_back_is_not_remembered(desk: Desk) -> None:
    session = desk.session()
    kept, gone = desk.say(session, "keep this"), desk.say(session, "forget this")
    before = memory_hash(desk, session)
    desk.supersede(session, [gone.id], "rollback", "cause")
    assert text(desk, session) == "operator: keep this"
    assert memory_hash(desk, session) != before
    assert kept.seq < gone.seq


def test_another_operators_session_is_no_part_of_it(desk: Desk) -> None:
    desk.say(desk.session(created_by="somebody-else"), "a secret of theirs")
    assert paths(desk) == []


def memory_hash(desk: Desk, session_id: str) -> str:
    project = desk.store.read(lambda db: projects.by_id(db, desk.project_id))
    listed = desk.store.read(lambda db: memory_sessions.listed(db, project))
    return next(one.hash for one in listed if one.path == memory_sessions.path_of(session_id))


@pytest.mark.req("O-029")
def test_little_news_of_a_session_can_wait_and_much_cannot(desk: Desk, tmp_path: Path) -> None:
    project = desk.store.read(lambda db: projects.by_id(db, desk.project_id))
    index = MemoryIndex(tmp_path / "m.sqlite", SETTINGS, None)
    memory = ProjectMemory(desk.opened, project, SETTINGS, index)
    session = desk.session()
    desk.say(session, "the first word")
    assert memory.is_dirty()
    assert not memory.is_dirty(patient=True), "one message is not many"
    memory.sync()
    assert not memory.is_dirty()
    for number in range(2):
        desk.say(session, f"word {number}")
    assert memory.is_dirty()
    assert not memory.is_dirty(patient=True)
    desk.say(session, "the third")
    assert memory.is_dirty(patient=True), "three messages are many here"
    memory.sync()
    desk.say(session, "x" * SETTINGS.sync.session_bytes)
    assert memory.is_dirty(patient=True), "one long message is much"
    index.close()
