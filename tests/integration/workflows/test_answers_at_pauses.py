"""Words of the operator at a pause: the model reads them as the answer, or as a message."""

from __future__ import annotations

import pytest
from temporalio.client import WorkflowHandle

from holdfast.domain.commands import Resume
from holdfast.domain.errors import Conflict
from holdfast.domain.ids import new_id
from tests.integration.workflows.held_model import HeldModel
from tests.support.local_worker import LocalWorker, script
from tests.support.servers.terminal_hosts import eventually

ASKS = {"call": "checkpoint", "arguments": {"reason": "May I delete the logs?"}}
WORDS = "yes, but keep the newest"
TEAM = """
primary:
  model: "scripted:echo"
  subagents:
    helper: {model: "scripted:echo"}
"""


@pytest.mark.req("K-064")
async def test_the_words_are_the_result_of_the_call_that_asked(worker: LocalWorker) -> None:
    session = worker.session()
    run = (await worker.send(session, script(ASKS, {"say": "Kept one."}))).run_id or ""
    row = await worker.state(session, "paused")
    resumed = await worker.resume(session, row.current_checkpoint, words=WORDS)
    assert (resumed.state, resumed.run_id) == ("running", run)
    assert (await worker.over(run)).state == "done"
    said = [(one.role, one.content) for one in worker.messages(session)]
    assert said[2:] == [("tool", WORDS), ("primary", "Kept one.")]
    assert worker.row(session).waiting == 0


async def test_a_subagent_gets_the_answer_to_its_own_question(worker: LocalWorker) -> None:
    session = worker.session(worker.project(TEAM))
    task = script(ASKS, {"say": "helped"})
    call = {"call": "subagent", "arguments": {"name": "helper", "prompt": task}}
    run = (await worker.send(session, script(call, {"say": "all done"}))).run_id or ""
    row = await worker.state(session, "paused")
    await worker.resume(session, row.current_checkpoint, words=WORDS)
    assert (await worker.over(run)).state == "done"
    (answer,) = [one for one in worker.messages(session) if one.content == WORDS]
    assert (answer.role, answer.agent_path) == ("tool", "primary.subagents.helper")
    assert answer.invocation_id is not None


async def test_words_at_the_operators_own_pause_are_seen_before_the_run_ends(
    worker: LocalWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Paused while the last answer is made: without the words it would be the last one."""
    model = HeldModel(monkeypatch)
    session = worker.session()
    run = (await worker.send(session, "one")).run_id or ""
    await model.holds.wait()
    paused = await worker.pause(session)
    resumed = await worker.resume(session, paused.checkpoint_id, words=WORDS)
    model.release()
    assert (resumed.state, resumed.run_id) == ("running", run)
    assert (await worker.over(run)).state == "done"
    said = [(one.role, one.content, one.run_id) for one in worker.messages(session)]
    assert said[2:] == [("operator", WORDS, run), ("primary", f"You said: {WORDS}", run)]


async def test_words_keep_a_run_going_that_had_nothing_left(
    worker: LocalWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = HeldModel(monkeypatch)
    session = worker.session()
    run = (await worker.send(session, "one")).run_id or ""
    await model.holds.wait()
    paused = await worker.pause(session)
    model.release()
    await worker.event(session, "call.put")

    async def is_known() -> bool:
        state = await worker.handle(session).describe()
        return not state.raw_description.pending_activities

    await eventually(is_known, "the model call to be over")
    await worker.resume(session, paused.checkpoint_id, words=WORDS)
    assert (await worker.over(run)).state == "done"
    assert worker.texts(session)[-2:] == [WORDS, f"You said: {WORDS}"]


async def test_a_repeated_answer_is_said_once(
    worker: LocalWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = HeldModel(monkeypatch)
    session = worker.session()
    run = (await worker.send(session, "one")).run_id or ""
    await model.holds.wait()
    paused = await worker.pause(session)
    model.release()
    asked = Resume(
        command_id=new_id(),
        user_id=worker.operator_id,
        checkpoint_id=paused.checkpoint_id,
        message=WORDS,
    )
    first = await worker.command(session, "resume", asked)
    await worker.over(run)
    second = await worker.command(session, "resume", asked)
    assert second == first
    assert worker.texts(session).count(WORDS) == 1


async def test_the_temporal_ui_can_answer_too(worker: LocalWorker) -> None:
    session = worker.session()
    run = (await worker.send(session, script(ASKS, {"say": "Kept one."}))).run_id or ""
    await worker.state(session, "paused")
    handle: WorkflowHandle[object, object] = worker.handle(session)
    await handle.signal("resume", {"message": WORDS})
    assert (await worker.over(run)).state == "done"
    assert worker.texts(session)[2:] == [WORDS, "Kept one."]


async def test_words_without_a_run_to_hear_them_are_refused(worker: LocalWorker) -> None:
    session = worker.session()
    await worker.run(session, "hello")
    with pytest.raises(Conflict, match="no run waits for words"):
        await worker.resume(session, words=WORDS)
    assert WORDS not in worker.texts(session)
