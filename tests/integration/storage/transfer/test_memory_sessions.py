"""Sessions as a source of memory: what was said, by whom, and nothing that was taken back."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.domain.memory import MemorySettings
from holdfast.memory.index import MemoryIndex
from holdfast.memory.project_memory import ProjectMemory
from holdfast.storage.database.opening import OpenStore
from holdfast.storage.projects import projects
from holdfast.storage.transfer import memory_sessions
from tests.support.workflow_double import WorkflowDouble

SETTINGS = MemorySettings.model_validate(
    {"sources": ["sessions"], "embedding": "none", "sync": {"session_messages": 3}}
)


@pytest.fixture
def workflow(either_store: OpenStore) -> WorkflowDouble:
    return WorkflowDouble(either_store)


def paths(workflow: WorkflowDouble) -> list[str]:
    project = workflow.store.read(lambda db: projects.by_id(db, workflow.project_id))
    return [one.path for one in workflow.store.read(lambda db: memory_sessions.listed(db, project))]


def text(workflow: WorkflowDouble, session_id: str) -> str:
    path = memory_sessions.path_of(session_id)
    return workflow.store.read(lambda db: memory_sessions.text(db, path))


def test_a_session_is_a_document_of_what_was_said(workflow: WorkflowDouble) -> None:
    session = workflow.session()
    workflow.session()  # nothing was said in this one
    workflow.say(session, "Where is\nthe kettle?")
    workflow.say(session, "In the pantry.", "primary")
    workflow.say(session, '{"exit_code": 0}', "tool")
    workflow.say(session, "my api_key=abcdefghijklmnop")
    assert paths(workflow) == [f"sessions/{session}.md"]
    said = (
        "operator: Where is the kettle?\nprimary: In the pantry.\noperator: my api_key=[redacted]"
    )
    assert text(workflow, session) == said


def test_what_was_taken_back_is_not_remembered(workflow: WorkflowDouble) -> None:
    session = workflow.session()
    kept, gone = workflow.say(session, "keep this"), workflow.say(session, "forget this")
    before = memory_hash(workflow, session)
    workflow.supersede(session, [gone.id], "rollback", "cause")
    assert text(workflow, session) == "operator: keep this"
    assert memory_hash(workflow, session) != before
    assert kept.seq < gone.seq


def test_another_operators_session_is_no_part_of_it(workflow: WorkflowDouble) -> None:
    workflow.say(workflow.session(created_by="somebody-else"), "a secret of theirs")
    assert paths(workflow) == []


def memory_hash(workflow: WorkflowDouble, session_id: str) -> str:
    project = workflow.store.read(lambda db: projects.by_id(db, workflow.project_id))
    listed = workflow.store.read(lambda db: memory_sessions.listed(db, project))
    return next(one.hash for one in listed if one.path == memory_sessions.path_of(session_id))


@pytest.mark.req("O-029")
def test_little_news_of_a_session_can_wait_and_much_cannot(
    workflow: WorkflowDouble, tmp_path: Path
) -> None:
    project = workflow.store.read(lambda db: projects.by_id(db, workflow.project_id))
    index = MemoryIndex(tmp_path / "m.sqlite", SETTINGS, None)
    memory = ProjectMemory(workflow.opened, project, SETTINGS, index)
    session = workflow.session()
    workflow.say(session, "the first word")
    assert memory.is_dirty()
    assert not memory.is_dirty(patient=True), "one message is not many"
    memory.sync()
    assert not memory.is_dirty()
    for number in range(2):
        workflow.say(session, f"word {number}")
    assert memory.is_dirty()
    assert not memory.is_dirty(patient=True)
    workflow.say(session, "the third")
    assert memory.is_dirty(patient=True), "three messages are many here"
    memory.sync()
    workflow.say(session, "x" * (SETTINGS.sync.session_bytes - 1))
    assert not memory.is_dirty(patient=True)
    workflow.say(session, "x")
    assert memory.is_dirty(patient=True), "long messages are much"
    index.close()


@pytest.mark.req("O-029")
@pytest.mark.parametrize(("said", "size"), [("é\\x", 4), ("漢字", 6), ("\U0001f389", 4), ("", 0)])
def test_what_a_session_said_is_counted_in_bytes(
    workflow: WorkflowDouble, said: str, size: int
) -> None:
    session = workflow.session()
    first = workflow.say(session, "before")
    workflow.say(session, said)
    path = memory_sessions.path_of(session)
    count = workflow.store.read(lambda db: memory_sessions.added_bytes(db, path, first.seq))
    assert count == size
