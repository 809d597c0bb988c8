"""From state to state on a store alone: what is taken, waits, is refused and is kept."""

from __future__ import annotations

import pytest
from ulid import ULID

from holdfast.domain.errors import Conflict
from holdfast.domain.ids import new_id
from holdfast.domain.steps import FinishStep, QueueStep, RecoverStep
from holdfast.storage.database.opening import OpenStore
from holdfast.storage.database.rows import change
from holdfast.storage.database.tables import Project
from holdfast.storage.log import frames
from holdfast.storage.moves import checkpoints, prompt_edits
from holdfast.storage.sessions import messages, run_views, runs
from tests.support.session_bench import SessionBench


@pytest.fixture
def bench(sqlite_store: OpenStore) -> SessionBench:
    return SessionBench(sqlite_store)


def queued(bench: SessionBench) -> tuple[str, str, str]:
    """A session that waits, its pending run, and the run that has the project's only slot."""
    project = bench.library.project_id
    bench.store.write(lambda db: change(db, Project, project, running_limit=1))
    busy = bench.library.begin(bench.library.session())
    session = bench.library.session()
    return session, bench.library.begin(session, "later"), busy


@pytest.mark.req("K-014", "K-028", "K-034", "K-036")
async def test_a_message_starts_a_run_of_an_idle_session(bench: SessionBench) -> None:
    session = bench.library.session()
    assert bench.library.row(session).state == "idle"
    run = bench.library.begin(session)
    row = bench.library.row(session)
    assert (row.state, row.active_run, row.run_count) == ("running", run, 1)
    assert bench.run_row(run).state == "running"
    assert bench.run_row(run).started_at is not None
    assert bench.moves(session) == [("idle", "running", "message")]
    assert [one["running"] for one in bench.told(session, "sessions.running_count")] == [1]


@pytest.mark.req("K-035")
async def test_a_session_has_one_active_run(bench: SessionBench) -> None:
    session = bench.library.session()
    run = bench.library.begin(session)
    with pytest.raises(Conflict) as refused:
        bench.library.begin(session, "me too")
    assert (refused.value.status, refused.value.code) == (409, "conflict")
    assert bench.library.row(session).active_run == run
    assert "me too" not in bench.library.texts(session)


@pytest.mark.req("K-015", "K-030", "K-037")
async def test_beyond_the_projects_limit_a_message_is_kept_and_waits(bench: SessionBench) -> None:
    session, run, _ = queued(bench)
    row = bench.library.row(session)
    assert (row.state, row.active_run) == ("queued", run)
    assert (bench.run_row(run).state, bench.run_row(run).started_at) == ("pending", None)
    assert bench.library.texts(session) == ["later"]
    (moved,) = bench.told(session, "session.state")
    assert (moved["to_state"], moved["queued"], moved["reason"]) == (
        "queued",
        True,
        "concurrency_limit",
    )
    (told,) = bench.told(session, "session.queued")
    assert (told["reason"], told["running_count"], told["limit"]) == ("per_project", 1, 1)


@pytest.mark.req("K-016", "K-029", "K-131")
async def test_a_queued_run_starts_when_it_is_resumed_and_there_is_a_slot(
    bench: SessionBench,
) -> None:
    session, run, busy = queued(bench)
    step = QueueStep(session_id=session, user_id=bench.operator)
    with pytest.raises(Exception, match="no free slot"):
        await bench.steps.start_queued(step)
    assert bench.run_row(run).state == "pending"
    bench.library.finish(busy)
    assert bench.library.row(session).state == "queued"
    assert await bench.steps.start_queued(step) == run
    assert bench.library.row(session).state == "running"
    assert bench.run_row(run).state == "running"
    assert bench.run_row(run).started_at is not None
    assert bench.moves(session)[-1] == ("queued", "running", "resume")
    assert [one["running"] for one in bench.told(session, "sessions.running_count")] == [1]
    assert bench.told(session, "session.resumed_from_queue") == [
        {"session_id": session, "run_id": run, "user_id": bench.operator, "running_count": 1}
    ]


@pytest.mark.req("K-017", "K-027", "K-036", "K-131")
async def test_a_discard_cancels_the_run_and_supersedes_its_message(bench: SessionBench) -> None:
    session, run, _ = queued(bench)
    await bench.steps.discard_queued(QueueStep(session_id=session, user_id=bench.operator))
    row = bench.library.row(session)
    assert (row.state, row.active_run) == ("idle", None)
    assert bench.run_row(run).state == "cancelled"
    assert bench.library.texts(session) == []
    assert bench.library.seen(session) == [
        (bench.run_row(run).operator_message, [f"discard:{run}"])
    ]
    assert bench.moves(session)[-1] == ("queued", "idle", "discard")
    assert bench.told(session, "session.queued_discarded") == [
        {
            "session_id": session,
            "run_id": run,
            "message_id": bench.run_row(run).operator_message,
            "user_id": bench.operator,
        }
    ]


@pytest.mark.req("K-018", "K-026", "K-036", "K-040")
@pytest.mark.parametrize("state", ["done", "failed", "cancelled"])
async def test_however_a_run_ends_its_session_is_idle(bench: SessionBench, state: str) -> None:
    session = bench.library.session()
    run = bench.library.begin(session)
    error = {"code": "provider_unreachable", "message": "no route"} if state == "failed" else None
    step = FinishStep(
        session_id=session,
        run_id=run,
        state=state,
        trigger=f"run.{state}",
        error_code=error["code"] if error else None,
        error_message=error["message"] if error else None,
    )
    await bench.steps.finish_run(step)
    row = bench.library.row(session)
    assert (row.state, row.active_run) == ("idle", None)
    ended = bench.run_row(run)
    assert (ended.state, ended.error) == (state, error)
    assert ended.completed_at is not None
    assert bench.moves(session)[-1] == ("running", "idle", f"run.{state}")
    assert [one["running"] for one in bench.told(session, "sessions.running_count")] == [1, 0]


@pytest.mark.req("K-021")
async def test_a_message_after_a_rollback_runs(bench: SessionBench) -> None:
    session = bench.library.session()
    first = bench.library.begin(session)
    point = bench.library.pause(session)
    bench.library.roll_back(session, point.id)
    assert bench.library.row(session).state == "idle"
    assert bench.run_row(first).state == "cancelled"
    second = bench.library.begin(session, "again")
    assert bench.library.row(session).active_run == second
    assert [(was, now) for was, now, _ in bench.moves(session)][-2:] == [
        ("paused", "idle"),
        ("idle", "running"),
    ]


@pytest.mark.req("K-034")
async def test_the_runs_of_a_session_are_in_order(bench: SessionBench) -> None:
    session = bench.library.session()
    made = []
    for _ in range(3):
        made.append(bench.library.begin(session))
        await bench.finish(session, made[-1])
    listed = bench.store.read(lambda db: runs.of_session(db, session, limit=10))
    assert [run.id for run in listed] == made[::-1]


@pytest.mark.req("K-038", "K-039")
async def test_a_run_shows_all_that_belongs_to_it(bench: SessionBench) -> None:
    session = bench.library.session()
    other = bench.library.begin(session, "before")
    bench.library.call(session, other, "read_file")
    await bench.finish(session, other)
    run = bench.library.begin(session, "asked")
    call = bench.library.call(session, run, command="true")
    helper = bench.library.subagent(session, run)
    bench.library.finish(run, "answered")
    shown = bench.store.read(lambda db: run_views.view(db, runs.get(db, run)))
    assert (shown["id"], shown["session_id"]) == (run, session)
    assert shown["operator_message"] is not None
    assert shown["operator_message"]["content"] == "asked"
    assert shown["primary_response"] is not None
    assert shown["primary_response"]["content"] == "answered"
    assert [(one["id"], one["input"]) for one in shown["tool_calls"]] == [
        (call, {"command": "true"})
    ]
    assert [one["id"] for one in shown["subagent_invocations"]] == [helper]
    assert shown["completed_at"] is not None
    assert shown["completed_at"] - (shown["started_at"] or 0) == shown["duration_ms"]


@pytest.mark.req("K-004", "K-040", "K-131")
@pytest.mark.parametrize("policy", ["resume", "fail"])
async def test_a_crash_loses_only_what_was_being_said(bench: SessionBench, policy: str) -> None:
    session = bench.library.session()
    run = bench.library.begin(session)
    bench.library.say(session, "committed", "primary", run_id=run)
    cut = new_id()
    delta = {"run_id": run, "message_id": cut, "agent_path": "primary", "text": "half a wo"}
    bench.store.write(lambda db: frames.append(db, session, ("delta", delta)))
    await bench.steps.recover_run(RecoverStep(session_id=session, run_id=run, policy=policy))
    assert "committed" in bench.library.texts(session)
    assert "half a wo" not in bench.library.texts(session)
    assert (cut, [f"retry:recovery:{run}"]) in bench.library.seen(session)
    (told,) = bench.told(session, "session.crash_recovered")
    assert (told["session_id"], told["failed_run_id"]) == (session, run)
    ended = bench.run_row(run)
    if policy == "fail":
        assert ended.error is not None
        assert (ended.state, ended.error["code"]) == ("failed", "daemon_crash_during_run")
        assert bench.library.row(session).state == "idle"
    else:
        assert (ended.state, ended.error) == ("running", None)
        assert bench.library.row(session).state == "running"


@pytest.mark.req("K-005")
async def test_what_is_made_is_named_by_ulids(bench: SessionBench) -> None:
    session = bench.library.session()
    run = bench.library.begin(session)
    point = bench.library.pause(session)
    blobs = bench.store.blobs
    edit = bench.store.write(lambda db: prompt_edits.edit(db, blobs, point, "primary", "Anew."))
    asked = bench.run_row(run).operator_message or ""
    said = bench.store.write(lambda db: messages.append(db, session, role="primary", content="x"))
    for made in (session, run, point.id, edit.id, asked, said.id):
        assert str(ULID.from_str(made)) == made
    assert asked < said.id
    assert bench.store.read(lambda db: checkpoints.get(db, session, point.id)).id == point.id


@pytest.mark.req("K-006")
async def test_a_session_lives_alike_on_both_databases(either_store: OpenStore) -> None:
    bench = SessionBench(either_store)
    session, waiting = bench.library.session(), bench.library.session()
    bench.store.write(lambda db: change(db, Project, bench.library.project_id, running_limit=1))
    run = bench.library.begin(session)
    bench.library.begin(waiting)
    point = bench.library.pause(session)
    bench.library.resume(session, point.id)
    await bench.finish(session, run)
    await bench.end(session)
    assert [state for _, state, _ in bench.moves(session)] == [
        *("running", "paused", "running", "idle", "ended")
    ]
    assert bench.library.row(waiting).state == "queued"
    for one in (session, waiting):
        assert len(bench.told(one, "session.created")) == 1
        assert len(bench.told(one, "run.created")) == 1
        assert bench.library.row(one).run_count == 1
