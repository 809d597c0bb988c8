"""What is told of sessions, runs, terminals and usage: each field under its own name."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.domain.ids import new_id
from holdfast.domain.transcript import Transcript
from holdfast.storage.database.opening import OpenStore
from holdfast.storage.database.rows import insert_once
from holdfast.storage.database.tables import Call, Run
from holdfast.storage.database.tables_history import Pty
from holdfast.storage.sessions import (
    leases,
    messages,
    ptys,
    run_views,
    runs,
    session_views,
    supersessions,
    titles,
)
from holdfast.storage.sessions.session_views import Filter, SessionShown
from holdfast.storage.sessions.usage import usage
from tests.support.sample_library import SampleLibrary
from tests.support.workflow_double import WorkflowDouble


@pytest.fixture
def library(sqlite_store: OpenStore) -> SampleLibrary:
    return SampleLibrary(sqlite_store)


@pytest.fixture
def workflow(sqlite_store: OpenStore) -> WorkflowDouble:
    return WorkflowDouble(sqlite_store)


def shown(library: SampleLibrary, session_id: str) -> SessionShown:
    """The session as lists show it."""
    wanted = Filter(library.operator_id)
    items, _ = library.store.read(lambda db: session_views.page(db, wanted, limit=9, cursor=None))
    return next(item for item in items if item["id"] == session_id)


def test_the_tokens_of_a_session_stand_under_their_names(library: SampleLibrary) -> None:
    counts = {
        name: place
        for place, name in enumerate(session_views.UsageShown.__annotations__, 1)
        if name.endswith("_tokens")
    }
    told = shown(library, library.session(**counts))["usage"]
    assert {name: told[name] for name in counts} == counts  # type: ignore[literal-required]
    assert len(counts) == 5


def test_only_a_session_that_ended_cleanly_can_be_reopened(library: SampleLibrary) -> None:
    cleanly = library.session(state="ended", end_reason="operator")
    failed = library.session(state="ended", end_reason="failed")
    broken = library.session(state="ended", end_reason="operator", failure={"code": "x"})
    assert "reopen" in shown(library, cleanly)["allowed_actions"]
    for session_id in (failed, broken):
        assert "reopen" not in shown(library, session_id)["allowed_actions"]


def test_a_run_shows_that_its_messages_no_longer_count(workflow: WorkflowDouble) -> None:
    session_id = workflow.session()
    workflow.run(session_id, "one")
    run = workflow.store.read(lambda db: runs.of_session(db, session_id, limit=1))[0]
    ids = [str(run.operator_message), str(run.primary_response)]

    def gone() -> list[bool]:
        told = workflow.store.read(lambda db: run_views.view(db, run))
        sides = (told["operator_message"], told["primary_response"])
        return [side is not None and side["superseded"] for side in sides]

    assert gone() == [False, False]
    workflow.supersede(session_id, ids, "rollback", "there")
    assert gone() == [True, True]


@pytest.mark.req("K-066")
def test_a_rollback_counts_only_what_it_takes_out_itself(workflow: WorkflowDouble) -> None:
    session_id = workflow.session()
    said = [message_id for _ in range(2) for message_id in said_by_run(workflow, session_id)]
    workflow.supersede(session_id, said[:1], "discard", "before the point")
    workflow.supersede(session_id, said[2:3], "compaction", "undone")
    workflow.store.write(lambda db: supersessions.undo(db, session_id, "compaction", "undone"))
    workflow.supersede(session_id, said[3:], "compaction", "in effect")
    workflow.supersede(workflow.fork(session_id), said[1:2], "compaction", "in a fork")

    def after_the_first(cause_id: str) -> int:
        return workflow.store.write(
            lambda db: supersessions.supersede_after(db, session_id, 1, "rollback", cause_id)
        )

    assert after_the_first("there") == 2
    assert after_the_first("there again") == 0


def said_by_run(workflow: WorkflowDouble, session_id: str) -> list[str]:
    """The messages of one more run."""
    before = len(workflow.seen(session_id))
    workflow.run(session_id)
    return [message_id for message_id, _ in workflow.seen(session_id)[before:]]


def test_a_message_that_is_not_there_has_no_place(workflow: WorkflowDouble) -> None:
    session_id = workflow.session()
    (asked, _) = said_by_run(workflow, session_id)

    def place(message_id: str) -> int | None:
        return workflow.store.read(lambda db: messages.seq_in(db, session_id, message_id))

    assert place(asked) == 1
    assert place("nothing") is None
    assert place(said_by_run(workflow, workflow.session())[0]) is None


def test_sessions_with_an_open_compaction_by_hand_are_found_up_to_a_limit(
    workflow: WorkflowDouble,
) -> None:
    for _ in range(2):
        session_id = workflow.session()
        workflow.begin(session_id)
        opened: dict[str, Any] = {
            "run_id": new_id(), "message_id": None, "user_id": "me", "state": "running",
            "preview": "",
        }  # fmt: skip
        workflow.store.write(lambda db, s=session_id, o=opened: runs.create(db, session_id=s, **o))  # type: ignore[misc]
    workflow.begin(workflow.session())

    def found(limit: int) -> int:
        return len(workflow.store.read(lambda db: runs.compacting_sessions(db, limit=limit)))

    assert (found(9), found(1)) == (2, 1)


@pytest.mark.req("K-045", "K-107")
def test_a_terminal_says_its_state_and_leaves_its_text(workflow: WorkflowDouble) -> None:
    session_id = workflow.session()
    pty = Pty(id=new_id(), session_id=session_id, command="cat", cols=80, rows=24)
    workflow.store.write(lambda db: ptys.opened(db, pty))

    def state() -> object:
        row = workflow.store.read(lambda db: ptys.get(db, session_id, pty.id))
        return workflow.store.read(lambda db: ptys.pty_json(db, row))["state"]

    assert state() == "detached"
    name = leases.attach_lease(session_id)
    workflow.store.write(lambda db: leases.acquire(db, name, "a client", life_ms=600_000))
    assert state() == "active"
    ended = Transcript(reason="exited", text="a\0b", line_count=1)
    workflow.store.write(lambda db: ptys.closed(db, pty.id, ended, blob_id="sha256:x"))
    assert state() == "closed"
    kept = workflow.store.read(lambda db: ptys.transcript_of(db, pty.id))
    assert kept is not None
    assert (kept.text, kept.line_count) == ("ab", 1)


@pytest.mark.req("H-037")
def test_usage_is_of_its_time_and_its_project(library: SampleLibrary) -> None:
    session_id = library.session()
    stranger = SampleLibrary(library.store, "somebody-else")
    library.store.write(lambda db: insert_once(db, Run, run_of(session_id).model_dump()))
    for at in (86_400_000, 3 * 86_400_000):
        call = Call(
            id=new_id(), session_id=session_id, run_id="run", model="m", provider="p",
            input_tokens=3, output_tokens=4, status="done", created_at=at,
        )  # fmt: skip
        library.store.write(lambda db, call=call: insert_once(db, Call, call.model_dump()))  # type: ignore[misc]

    def counted(**limits: Any) -> int:
        report = library.store.read(lambda db: usage(db, library.operator_id, **limits))
        assert {key for row in report["by_day"] for key in row}.isdisjoint({"day_at"})
        return int(report["total"]["total_tokens"])

    assert counted() == 14
    assert counted(since=2 * 86_400_000) == 7
    assert counted(until=2 * 86_400_000) == 7
    assert counted(since=86_400_000, until=3 * 86_400_000) == 14
    assert counted(project_id=library.project_id) == 14
    assert counted(project_id=stranger.project_id) == 0


def run_of(session_id: str) -> Run:
    return Run(id="run", session_id=session_id, state="done", created_at=1)


def test_an_automatic_title_keeps_the_last_character_of_a_word(library: SampleLibrary) -> None:
    session = library.session()
    library.say(session, "word " * 11 + "dot· and so on")
    title = library.store.write(lambda db: titles.auto_title(db, session))
    assert title == "word " * 11 + "dot·…"
