"""The workflow as a session's lock: commands once, signals, roll-over, and starting anew."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest
from temporalio.client import WorkflowExecutionStatus

from holdfast.domain.commands import Cancel, Command, NewMessage, Pause, Resume
from holdfast.domain.errors import Conflict
from holdfast.domain.ids import new_id
from tests.support.local_worker import LocalWorker, script, until
from tests.support.servers.terminal_hosts import eventually
from worker.recovery import restart_lost
from workflows import waiting

HANGING = script({"hang_s": 60})


@pytest.mark.req("K-035")
async def test_the_same_command_is_answered_once_and_repeated_after(worker: LocalWorker) -> None:
    session, command = worker.session(), new_id()
    answers = await asyncio.gather(
        *(worker.send(session, "hello", command_id=command) for _ in range(5))
    )
    assert len({answer.run_id for answer in answers}) == 1
    await worker.over(answers[0].run_id or "")
    await worker.state(session, "idle")
    assert (await worker.send(session, "hello", command_id=command)).run_id == answers[0].run_id
    assert worker.texts(session) == ["hello", "You said: hello"]


async def test_commands_stay_answered_and_the_session_whole_across_roll_overs(
    rolling_worker: LocalWorker,
) -> None:
    worker = rolling_worker
    session, command = worker.session(stuck_guard=False), new_id()
    first = await worker.send(session, "hello", command_id=command)
    await worker.over(first.run_id or "")
    first_run = (await worker.handle(session).describe()).run_id
    steps = {"repeat": 12, "step": {"call": "list_files"}}
    run = await worker.run(session, script(steps, {"say": "Twelve."}))
    assert (run.state, run.steps) == ("done", 13)
    assert (await worker.handle(session).describe()).run_id != first_run, "it never rolled over"
    assert worker.texts(session)[-1] == "Twelve."
    assert len(worker.messages(session)) == 2 + 1 + 12 * 2 + 1
    await worker.state(session, "idle")
    again = await worker.send(session, "hello", command_id=command)
    assert again.run_id == first.run_id
    assert worker.row(session).run_count == 2


async def test_a_cancel_during_roll_overs_is_never_lost(rolling_worker: LocalWorker) -> None:
    worker = rolling_worker
    session = worker.session(stuck_guard=False)
    steps = {"repeat": 1000, "step": {"call": "list_files"}}
    run = (await worker.send(session, script(steps))).run_id or ""

    def some_steps() -> bool:
        return worker.run_row(run).steps >= 12

    await until(some_steps, "twelve steps")
    await worker.cancel(session)
    assert (await worker.over(run)).state == "cancelled"
    assert (await worker.run(session, "go on")).state == "done"


async def test_a_session_is_driven_by_signals_alone(worker: LocalWorker) -> None:
    session = worker.session()
    await worker.run(session, "hello")  # so that the workflow is there
    handle = worker.handle(session)
    await handle.signal("message", NewMessage(content=HANGING))
    run = (await worker.state(session, "running")).active_run or ""
    await handle.signal("checkpoint", Pause(reason="by hand"))
    await worker.state(session, "paused")
    assert (await worker.event(session, "checkpoint.created")).data["reason"] == "by hand"
    await handle.signal("resume", Resume())
    await worker.state(session, "running")
    await handle.signal("cancel", Cancel())
    assert (await worker.over(run)).state == "cancelled"
    await worker.state(session, "idle")
    await handle.signal("end", Command())
    await worker.state(session, "ended")


async def test_a_refused_signal_is_recorded_and_harms_nothing(worker: LocalWorker) -> None:
    session = worker.session()
    await worker.run(session, "hello")
    handle = worker.handle(session)
    await handle.signal("checkpoint", Pause(reason="nothing runs"))
    refused = await worker.event(session, "command.refused")
    assert refused.data["command"] == "checkpoint"
    assert "idle" in refused.data["reason"]
    assert (await worker.run(session, "still there?")).state == "done"


async def test_a_session_let_go_after_a_week_starts_again_with_the_next_command(
    worker: LocalWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waiting, "PASSIVATE_AFTER", timedelta(milliseconds=300))
    session = worker.session()
    await worker.run(session, "one")
    result = await worker.handle(session).result()
    assert result == "passivated"
    assert (await worker.run(session, "two")).state == "done"
    assert worker.texts(session) == ["one", "You said: one", "two", "You said: two"]


@pytest.mark.req("K-016")
async def test_a_queued_session_that_was_let_go_can_be_resumed(worker: LocalWorker) -> None:
    busy = [worker.session() for _ in range(4)]
    for one in busy:
        await worker.send(one, HANGING)
    session = worker.session()
    run = (await worker.send(session, "hello")).run_id or ""
    await worker.handle(session).terminate("lost")
    await worker.cancel(busy[0])
    await worker.state(busy[0], "idle")
    assert (await worker.resume(session)).state == "running"
    assert (await worker.over(run)).state == "done"
    assert worker.texts(session)[-1] == "You said: hello"


@pytest.mark.req("K-099")
async def test_a_run_whose_workflow_is_lost_goes_on_by_the_start_up_scan(
    worker: LocalWorker,
) -> None:
    session = worker.session()
    steps = script(
        {"call": "list_files"}, {"deltas": 200, "every_ms": 10}, {"say": "never reached"}
    )
    run = (await worker.send(session, steps)).run_id or ""
    await worker.streaming(session)
    await worker.handle(session).terminate("lost")
    await restart_lost(worker.sessions, worker.store)
    assert (await worker.over(run)).state == "done"
    recovered = await worker.event(session, "session.crash_recovered")
    assert recovered.data["failed_run_id"] == run
    roles = [message.role for message in worker.messages(session)]
    assert roles == ["operator", "primary", "tool", "primary"]
    everything = worker.messages(session, all_of_them=True)
    cut = [one for one in everything if one.meta.get("partial")]
    assert [one.content.startswith("1 ") for one in cut] == [True], "its words are kept aside"
    assert worker.texts(session)[-1].endswith(" 200 "), "and said again to their end"


@pytest.mark.req("K-020")
async def test_a_paused_session_whose_workflow_is_lost_goes_on_where_it_was(
    worker: LocalWorker,
) -> None:
    session = worker.session()
    steps = script({"call": "list_files"}, {"hang_s": 2, "say": "said after all"})
    run = (await worker.send(session, steps)).run_id or ""
    await worker.event(session, "call.put")
    paused = await worker.pause(session)
    await worker.handle(session).terminate("lost")
    assert (await worker.resume(session, paused.checkpoint_id)).state == "running"
    assert (await worker.over(run)).state == "done"
    assert worker.texts(session)[-1] == "said after all"


@pytest.mark.req("K-099", "K-140", "K-040", "K-144")
async def test_a_project_may_want_lost_runs_to_fail(worker: LocalWorker) -> None:
    project = worker.project("primary: {model: 'scripted:echo'}\non_crash: fail\n")
    session = worker.session(project)
    run = (await worker.send(session, HANGING)).run_id or ""
    await worker.handle(session).terminate("lost")
    await restart_lost(worker.sessions, worker.store)
    ended = await worker.over(run)
    assert ended.state == "failed"
    assert ended.error == {
        "code": "daemon_crash_during_run",
        "message": "Previous run was interrupted by a daemon restart.",
    }
    assert (await worker.state(session, "idle")).active_run is None
    assert "session.crash_recovered" in worker.kinds(session)
    assert (await worker.run(session, "go on")).state == "done"


async def test_a_step_that_was_done_but_not_reported_is_made_good(worker: LocalWorker) -> None:
    """As after a worker's death between a short step's commit and its report."""
    session = worker.session()
    await worker.run(session, "hello")
    await worker.stop_worker()
    run = (await worker.by_the_book(session, script({"say": "after the crash"}))).run_id
    await worker.start_worker()
    with pytest.raises(Conflict):
        await worker.send(session, "another")
    assert (await worker.over(run)).state == "done"
    assert worker.texts(session)[-1] == "after the crash"


async def test_a_message_taken_before_its_workflow_was_is_not_refused_when_it_comes_again(
    worker: LocalWorker,
) -> None:
    session = worker.session()
    admitted = await worker.by_the_book(session, script({"say": "after the crash"}))
    answer = await worker.send(session, "the same", command_id=admitted.message_id)
    assert (answer.state, answer.run_id) == ("running", admitted.run_id)
    assert (await worker.over(admitted.run_id)).state == "done"


async def test_the_temporal_ui_can_find_a_session(worker: LocalWorker) -> None:
    session = worker.session()
    await worker.run(session, "find me")
    expected = {
        "SessionState": "idle",
        "Project": worker.project_id,
        "Operator": worker.operator_id,
        "Title": "find me",
    }

    # The database knows first; the workflow shows it when its task is over.
    async def is_shown() -> bool:
        described = await worker.handle(session).describe()
        shown = {key.name: value for key, value in described.typed_search_attributes}
        return expected.items() <= shown.items()

    await eventually(is_shown, "its search attributes")
    described = await worker.handle(session).describe()
    assert described.status is WorkflowExecutionStatus.RUNNING
