"""The limits of running sessions, held by the database: who runs, who waits, who is told."""

from __future__ import annotations

from typing import Any

import pytest
from sqlalchemy import text
from sqlalchemy.exc import OperationalError

from holdfast.domain.errors import Conflict
from holdfast.domain.ids import new_id
from holdfast.domain.lifecycle import Action
from holdfast.storage.database.engine import Db
from holdfast.storage.database.opening import OpenStore
from holdfast.storage.database.rows import insert_once
from holdfast.storage.database.tables import Project
from holdfast.storage.database.tables_history import Pty
from holdfast.storage.log import events
from holdfast.storage.sessions import admission, ptys, running_counts, sessions
from tests.support.workflow_double import WorkflowDouble


@pytest.fixture
def workflow(sqlite_store: OpenStore) -> WorkflowDouble:
    return WorkflowDouble(sqlite_store)


def busy(workflow: WorkflowDouble, count: int = 4, **columns: Any) -> list[tuple[str, str]]:
    """Sessions that run, each with its run."""
    made = [workflow.session(**columns) for _ in range(count)]
    return [(session, workflow.begin(session)) for session in made]


def queued(workflow: WorkflowDouble) -> str:
    """A session whose message came when four others ran."""
    session = workflow.session()
    workflow.begin(session)
    assert workflow.row(session).state == "queued"
    return session


def start(workflow: WorkflowDouble, session: str) -> str:
    return workflow.store.write(
        lambda db: admission.start_queued(db, session, workflow.operator_id)
    )


def told(workflow: WorkflowDouble, session: str, kind: str) -> list[dict[str, Any]]:
    log = workflow.store.read(lambda db: events.after(db, session, 0, limit=500))
    return [one.data for one in log if one.kind == kind]


def another_project(workflow: WorkflowDouble) -> str:
    project = Project(
        id=new_id(), created_by=workflow.operator_id, name="another", path=f"/{new_id()}"
    )
    workflow.store.write(lambda db: insert_once(db, Project, project.model_dump()))
    return project.id


@pytest.mark.req("K-119", "K-120", "K-121", "K-145")
def test_five_are_created_and_the_fifth_message_waits(workflow: WorkflowDouble) -> None:
    made = [workflow.session() for _ in range(5)]
    for session in made:
        workflow.begin(session)
    states = [workflow.row(session).state for session in made]
    assert states == ["running"] * 4 + ["queued"]
    late = workflow.session()
    assert workflow.row(late).state == "idle", "the limit is no matter of creation"
    (why,) = told(workflow, made[-1], "session.queued")
    assert (why["reason"], why["running_count"], why["limit"]) == ("per_project", 4, 4)


@pytest.mark.req("K-119", "K-121", "K-145")
def test_the_seventeenth_message_of_an_operator_waits(workflow: WorkflowDouble) -> None:
    for _ in range(4):
        running = busy(workflow, project_id=another_project(workflow))
        assert {workflow.row(session).state for session, _ in running} == {"running"}
    session = queued(workflow)
    (why,) = told(workflow, session, "session.queued")
    assert (why["reason"], why["running_count"], why["limit"]) == ("per_operator", 16, 16)


@pytest.mark.req("K-119", "K-121", "K-124", "K-144")
def test_a_session_has_one_run_and_refuses_a_second(workflow: WorkflowDouble) -> None:
    session = workflow.session()
    run = workflow.begin(session, "one")
    with pytest.raises(Conflict):
        workflow.begin(session, "two")
    assert (workflow.row(session).active_run, workflow.texts(session)) == (run, ["one"])
    assert workflow.row(session).run_count == 1


@pytest.mark.req("K-124")
def test_a_session_is_locked_alone_while_it_is_moved(postgres_store: OpenStore) -> None:
    workflow = WorkflowDouble(postgres_store)
    held, other = workflow.session(), workflow.session()

    def look(session: str) -> None:
        with Db(postgres_store.writer) as db:
            db.connection().execute(text("SET LOCAL lock_timeout = '200ms'"))
            sessions.lock(db, session)

    def move(db: Db) -> None:
        sessions.move(db, held, Action.START, "test")
        look(other)  # no lock of another session is waited for
        with pytest.raises(OperationalError, match="lock timeout"):
            look(held)

    postgres_store.write(move)
    look(held)


@pytest.mark.req("K-119", "K-121")
def test_a_session_has_eight_terminals(workflow: WorkflowDouble) -> None:
    session = workflow.session()

    def open_one() -> Pty:
        return workflow.store.write(
            lambda db: ptys.opened(db, Pty(id=new_id(), session_id=session))
        )

    assert len({open_one().id for _ in range(8)}) == 8
    with pytest.raises(Conflict, match="at most 8 terminals"):
        open_one()


@pytest.mark.req("K-122", "K-145")
def test_a_free_slot_is_told_and_taken_by_the_operator_alone(workflow: WorkflowDouble) -> None:
    (first, run), *_ = busy(workflow)
    session = queued(workflow)
    with pytest.raises(Conflict, match="no free slot"):
        start(workflow, session)
    workflow.finish(run)
    assert told(workflow, first, "sessions.running_count")[-1]["running"] == 3
    assert workflow.row(session).state == "queued", "nobody asked for it"
    assert start(workflow, session) == workflow.row(session).active_run
    assert workflow.row(session).state == "running"


@pytest.mark.req("K-122", "K-145")
def test_a_discarded_message_takes_no_slot(workflow: WorkflowDouble) -> None:
    busy(workflow)
    session = queued(workflow)
    workflow.store.write(lambda db: admission.discard(db, session, workflow.operator_id))
    assert (workflow.row(session).state, workflow.row(session).active_run) == ("idle", None)
    assert workflow.texts(session) == []
    with pytest.raises(Conflict):
        start(workflow, session)


@pytest.mark.req("K-123", "K-145")
def test_only_what_runs_counts(workflow: WorkflowDouble) -> None:
    (paused, _), *_ = busy(workflow)
    workflow.pause(paused)
    session = workflow.session()
    workflow.begin(session)
    assert workflow.row(session).state == "running", "a pause gave its slot away"


@pytest.mark.req("K-125", "K-145")
def test_every_start_and_every_end_is_told_with_both_counts(workflow: WorkflowDouble) -> None:
    elsewhere = another_project(workflow)
    busy(workflow, 2, project_id=elsewhere)
    ((session, run),) = busy(workflow, 1)
    workflow.finish(run)
    assert told(workflow, session, "sessions.running_count") == [
        {"project_id": workflow.project_id, "running": 1, "limit": 4, "operator_running": 3},
        {"project_id": workflow.project_id, "running": 0, "limit": 4, "operator_running": 2},
    ]
    now = workflow.store.read(lambda db: running_counts.counts(db, workflow.operator_id))
    assert now == {
        "total": 2,
        "per_project": {
            workflow.project_id: {"running": 0, "limit": 4},
            elsewhere: {"running": 2, "limit": 4},
        },
        "per_operator": {workflow.operator_id: {"running": 2, "limit": 16}},
    }
