"""Messages to a session that is at work: queued, steered, or an interrupt. None is lost."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.domain.errors import Conflict, NotFound
from holdfast.domain.ids import new_id
from holdfast.storage.sessions import waiting
from tests.integration.workflows.held_model import HeldModel
from tests.support.local_worker import LocalWorker, script, until
from worker.recovery import restart_lost

LONG = {"deltas": 60_000, "every_ms": 10}
HANGS = {"say": "never said", "hang_s": 600}
TEAM = """
primary:
  model: "scripted:echo"
  subagents:
    helper: {model: "scripted:echo"}
"""


@pytest.fixture
def model(monkeypatch: pytest.MonkeyPatch) -> HeldModel:
    """Model calls wait until the test lets them answer."""
    return HeldModel(monkeypatch)


async def drained(worker: LocalWorker, session: str) -> None:
    """Wait until nothing waits and nothing runs."""

    def at_rest() -> bool:
        row = worker.row(session)
        return row.state == "idle" and row.waiting == 0

    await until(at_rest, "the session to come to rest")


async def test_queued_messages_begin_runs_of_their_own_in_order(
    worker: LocalWorker, model: HeldModel
) -> None:
    session = worker.session()
    await worker.send(session, "one")
    await model.holds.wait()
    queued = [await worker.send(session, text, when_busy="queue") for text in ("two", "three")]
    assert [(one.waiting, one.run_id) for one in queued] == [(True, None)] * 2
    assert worker.row(session).waiting == 2
    model.release()
    await drained(worker, session)
    assert worker.texts(session)[2:] == ["two", "You said: two", "three", "You said: three"]
    assert len({one.run_id for one in worker.messages(session)}) == 3
    assert worker.kinds(session).count("message.waiting") == 2


async def test_a_steered_message_is_seen_after_the_results_of_the_calls_under_way(
    worker: LocalWorker,
) -> None:
    session = worker.session()
    waits = "while [ ! -e go ]; do sleep 0.05; done; echo went"
    sleeping = {"call": "shell", "arguments": {"command": waits}}
    run = (await worker.send(session, script(sleeping, {"say": "never said"}))).run_id
    await worker.event(session, "call.put")
    steered = await worker.send(session, "hurry up", when_busy="steer")
    assert (steered.state, steered.run_id) == ("running", run)
    (Path(worker.row(session).working_directory) / "go").touch()
    ended = await worker.over(run or "")
    roles = [(one.role, one.run_id) for one in worker.messages(session)]
    assert roles == [(role, run) for role in ("operator", "primary", "tool", "operator", "primary")]
    assert worker.texts(session)[-2:] == ["hurry up", "You said: hurry up"]
    assert ended.primary_response == worker.messages(session)[-1].id
    told = await worker.event(session, "message.steered")
    assert told.data["message_id"] == steered.message_id
    assert (told.data["run_id"], worker.row(session).waiting) == (run, 0)


async def test_a_run_that_is_giving_its_last_answer_makes_one_more_call_for_steered_words(
    worker: LocalWorker, model: HeldModel
) -> None:
    session = worker.session()
    run = (await worker.send(session, "one")).run_id or ""
    await model.holds.wait()
    await worker.send(session, "one more thing", when_busy="steer")
    model.release()
    await worker.over(run)
    said = [(one.content, one.run_id) for one in worker.messages(session)]
    assert said[2:] == [("one more thing", run), ("You said: one more thing", run)]


async def test_an_interrupt_ends_the_run_keeps_its_words_and_begins_another(
    worker: LocalWorker,
) -> None:
    session = worker.session()
    run = (await worker.send(session, script(LONG))).run_id or ""
    await worker.streaming(session)
    await worker.send(session, "later", when_busy="queue")
    answer = await worker.send(session, "stop that", when_busy="interrupt")
    assert answer.waiting
    assert answer.run_id not in (None, run)
    assert (await worker.over(run)).state == "cancelled"
    await drained(worker, session)
    assert worker.run_row(answer.run_id or "").state == "done"
    said = [(one.role, one.content) for one in worker.messages(session)]
    assert said[1][0] == "primary"
    assert said[1][1].startswith("1 2 ")
    assert worker.messages(session)[1].meta["partial"]
    asked = [content for role, content in said if role == "operator"]
    assert asked[1:] == ["stop that", "later"], "ahead of what waited before"


async def test_of_two_interrupts_the_later_one_ends_the_run_of_the_earlier(
    worker: LocalWorker,
) -> None:
    session = worker.session()
    run = (await worker.send(session, script(LONG))).run_id or ""
    await worker.streaming(session)
    earlier = (await worker.send(session, script(LONG), when_busy="interrupt")).run_id or ""
    later = (await worker.send(session, "stop that", when_busy="interrupt")).run_id or ""
    await drained(worker, session)
    states = [worker.run_row(one).state for one in (run, earlier, later)]
    assert states == ["cancelled", "cancelled", "done"]
    assert worker.texts(session)[-1] == "You said: stop that"


async def test_what_is_sent_while_paused_waits_until_the_session_goes_on(
    worker: LocalWorker, model: HeldModel
) -> None:
    session = worker.session()
    run = (await worker.send(session, "one")).run_id or ""
    await model.holds.wait()
    paused = await worker.pause(session)
    await worker.send(session, "then this", when_busy="queue")
    await worker.send(session, "first this", when_busy="steer")
    with pytest.raises(Conflict):
        await worker.send(session, "no", when_busy="interrupt")
    assert worker.row(session).waiting == 2
    await worker.resume(session, paused.checkpoint_id)
    model.release()
    assert (await worker.over(run)).state == "done"
    await drained(worker, session)
    asked = [(one.content, one.run_id == run) for one in worker.messages(session)]
    assert asked[2:] == [
        ("first this", True),
        ("You said: first this", True),
        ("then this", False),
        ("You said: then this", False),
    ]


async def test_a_session_without_a_slot_only_queues(worker: LocalWorker) -> None:
    busy = [worker.session() for _ in range(4)]
    for one in busy:
        await worker.send(one, script(HANGS))
    session = worker.session()
    run = (await worker.send(session, "one")).run_id or ""
    await worker.send(session, "two", when_busy="queue")
    for kind in ("steer", "interrupt"):
        with pytest.raises(Conflict):
            await worker.send(session, "no", when_busy=kind)
    await worker.cancel(busy[0])
    await worker.state(busy[0], "idle")
    await worker.resume(session)
    await worker.over(run)
    await drained(worker, session)
    assert worker.texts(session)[2:] == ["two", "You said: two"]


async def test_at_most_twenty_wait(worker: LocalWorker) -> None:
    session = worker.session()
    await worker.send(session, script(HANGS))
    for number in range(waiting.WAITING_MAX):
        await worker.send(session, f"{number}", when_busy="queue")
    with pytest.raises(Conflict) as refused:
        await worker.send(session, "one too many", when_busy="queue")
    assert (refused.value.details or {})["waiting"] == waiting.WAITING_MAX
    assert worker.row(session).waiting == waiting.WAITING_MAX


async def test_the_default_is_a_refusal_also_between_the_runs_of_what_waits(
    worker: LocalWorker, model: HeldModel
) -> None:
    session = worker.session()
    await worker.send(session, "one")
    await worker.send(session, script(HANGS), when_busy="queue")
    with pytest.raises(Conflict):
        await worker.send(session, "no")
    model.release()
    await worker.event(session, "run.completed")
    with pytest.raises(Conflict):
        await worker.send(session, "no")
    assert "no" not in worker.texts(session)


async def test_a_message_that_waits_can_be_changed_and_taken_back(
    worker: LocalWorker, model: HeldModel
) -> None:
    session = worker.session()
    run = (await worker.send(session, "one")).run_id or ""
    kept = (await worker.send(session, "teh", when_busy="queue")).message_id or ""
    gone = (await worker.send(session, "no", when_busy="queue")).message_id or ""
    worker.store.write(lambda db: waiting.edit(db, session, kept, "the"))
    worker.store.write(lambda db: waiting.withdraw(db, session, gone))
    with pytest.raises(NotFound):
        worker.store.write(lambda db: waiting.withdraw(db, session, gone))
    model.release()
    await worker.over(run)
    await drained(worker, session)
    assert worker.texts(session)[2:] == ["the", "You said: the"]
    with pytest.raises(Conflict, match="has taken it"):
        worker.store.write(lambda db: waiting.edit(db, session, kept, "too late"))


async def test_subagents_go_on_while_words_wait_for_the_root_agent(
    worker: LocalWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = worker.session(worker.project(TEAM))
    model = HeldModel(monkeypatch, let_through=1)
    task = script({"call": "list_files"}, {"say": "helped"})
    call = {"call": "subagent", "arguments": {"name": "helper", "prompt": task}}
    run = (await worker.send(session, script(call, {"say": "unused"}))).run_id or ""
    await model.holds.wait()  # in the subagent
    await worker.send(session, "and then?", when_busy="steer")
    await worker.send(session, "and at last?", when_busy="queue")
    model.release()
    assert (await worker.over(run)).state == "done"
    await drained(worker, session)
    said = [one.content for one in worker.messages(session) if one.agent_path == "primary"]
    asked = said.index("and then?")
    assert "helped" in said[asked - 1]
    assert said[asked + 1 :] == ["You said: and then?", "and at last?", "You said: and at last?"]


@pytest.mark.parametrize("moment", ["running", "idle"])
async def test_what_waits_survives_a_lost_workflow(
    worker: LocalWorker, model: HeldModel, moment: str
) -> None:
    session = worker.session()
    run = (await worker.send(session, "one")).run_id or ""
    await model.holds.wait()
    if moment == "running":
        await worker.send(session, "steered", when_busy="steer")
        await worker.send(session, "queued", when_busy="queue")
        await worker.handle(session).terminate("lost")
        model.release()
    else:
        model.release()
        await worker.over(run)
        await worker.state(session, "idle")
        await worker.handle(session).terminate("lost")
        message = new_id()
        await worker.stage(session, message, "queued")
        worker.store.write(
            lambda db: waiting.keep(
                db, session, message_id=message, when_busy="queue", user_id=worker.operator_id
            )
        )
    await restart_lost(worker.sessions, worker.store)
    await drained(worker, session)
    asked = [one.content for one in worker.messages(session) if one.role == "operator"]
    assert asked[1:] == (["steered", "queued"] if moment == "running" else ["queued"])
    assert worker.texts(session)[-1] == "You said: queued"


async def test_an_interrupt_survives_a_lost_workflow(worker: LocalWorker) -> None:
    session = worker.session()
    run = (await worker.send(session, script(LONG))).run_id or ""
    await worker.streaming(session)
    await worker.stop_worker()
    message, next_run = new_id(), new_id()
    await worker.stage(session, message, "stop that")
    worker.store.write(
        lambda db: waiting.keep(
            db,
            session,
            message_id=message,
            when_busy="interrupt",
            user_id=worker.operator_id,
            run_id=next_run,
        )
    )
    await worker.handle(session).terminate("lost between the message and the cancel")
    await worker.start_worker()
    await restart_lost(worker.sessions, worker.store)
    await drained(worker, session)
    assert worker.run_row(run).state == "cancelled"
    assert worker.run_row(next_run).state == "done"
    assert worker.texts(session)[-1] == "You said: stop that"


async def test_waiting_messages_are_carried_over_a_roll_over(rolling_worker: LocalWorker) -> None:
    worker = rolling_worker
    session = worker.session(stuck_guard=False)
    steps = {"repeat": 12, "step": {"call": "list_files"}}
    await worker.send(session, script(steps, {"say": "done"}))
    await worker.event(session, "call.put")
    for number in range(3):
        await worker.send(session, f"queued {number}", when_busy="queue")
    await drained(worker, session)
    asked = [one.content for one in worker.messages(session) if one.role == "operator"]
    assert asked[1:] == ["queued 0", "queued 1", "queued 2"]
    description = await worker.handle(session).describe()
    first = description.raw_description.workflow_execution_info.first_run_id
    assert description.run_id != first, "the history did roll over"


async def test_a_signal_of_the_temporal_ui_can_steer(worker: LocalWorker, model: HeldModel) -> None:
    session = worker.session()
    run = (await worker.send(session, "one")).run_id or ""
    await model.holds.wait()
    signal = {"content": "from the side", "when_busy": "steer"}
    await worker.handle(session).signal("message", signal)
    await worker.event(session, "message.waiting")
    model.release()
    await worker.over(run)
    assert worker.texts(session)[-1] == "You said: from the side"
    await worker.handle(session).signal("message", {"content": "?", "when_busy": "shout"})


async def test_a_message_is_kept_once_however_often_it_is_sent(
    worker: LocalWorker, model: HeldModel
) -> None:
    session = worker.session()
    await worker.send(session, "one")
    await model.holds.wait()
    key = new_id()
    first = await worker.send(session, "once", when_busy="steer", command_id=key)
    await worker.handle(session).terminate("what it was asked is forgotten")
    await restart_lost(worker.sessions, worker.store)
    again = await worker.send(session, "once", when_busy="steer", command_id=key)
    assert again.message_id == first.message_id
    model.release()
    await drained(worker, session)
    assert worker.texts(session).count("once") == 1
