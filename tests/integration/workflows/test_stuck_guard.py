"""A run that goes round in a circle pauses and says what repeats."""

from __future__ import annotations

from holdfast.storage.moves import checkpoints
from tests.support.local_worker import LocalWorker, script

SAME = {"call": "list_files", "arguments": {}}
OTHER = {"call": "list_files", "arguments": {"path": ".holdfast"}}


async def test_six_equal_calls_with_equal_results_pause_the_session(worker: LocalWorker) -> None:
    session = worker.session()
    sent = await worker.send(session, script(*[SAME] * 7, {"say": "done"}))
    row = await worker.state(session, "paused")
    point = worker.store.read(lambda db: checkpoints.get(db, session, row.current_checkpoint or ""))
    assert point.created_by == "stuck"
    assert point.reason == "The same call had the same result 6 times in a row: list_files: ."
    assert row.tool_call_count == 6
    await worker.resume(session, row.current_checkpoint)
    assert (await worker.over(sent.run_id or "")).state == "done", "it counts anew"


async def test_equal_calls_of_one_answer_count_once(worker: LocalWorker) -> None:
    many = {"calls": [SAME] * 12}
    assert (await worker.run(worker.session(), script(many, many, {"say": "done"}))).state == "done"
    session = worker.session()
    await worker.send(session, script(*[many] * 7, {"say": "done"}))
    assert (await worker.state(session, "paused")).tool_call_count == 72


async def test_two_calls_that_take_turns_pause_it_too(worker: LocalWorker) -> None:
    session = worker.session()
    await worker.send(session, script(*[SAME, OTHER] * 5, {"say": "done"}))
    row = await worker.state(session, "paused")
    assert row.tool_call_count == 8


async def test_a_session_a_project_file_or_the_configuration_may_do_without(
    worker: LocalWorker,
) -> None:
    content = script(*[SAME] * 6, {"say": "done"})
    assert (await worker.run(worker.session(stuck_guard=False), content)).state == "done"
    project = worker.project("primary: {model: 'scripted:echo', stuck_guard: false}\n")
    assert (await worker.run(worker.session(project), content)).state == "done"
    off = worker.config.limits.model_copy(update={"stuck_guard": False})
    object.__setattr__(worker.config, "limits", off)
    assert (await worker.run(worker.session(), content)).state == "done"
