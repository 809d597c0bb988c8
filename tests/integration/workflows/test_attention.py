"""What a session needs from a person, from the first sign of it until it is met."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from activities import provider_trouble
from holdfast.agent.errors import UNREACHABLE, PassingProviderError, PermanentProviderError
from holdfast.domain.commands import Retry
from holdfast.domain.errors import Conflict
from holdfast.domain.ids import new_id
from holdfast.settings.config import Config
from holdfast.storage.hosts import hosts
from holdfast.storage.sessions import attention, run_views, runs, session_views
from holdfast.storage.sessions.session_views import Filter, SessionShown
from tests.integration.workflows.held_model import HeldModel
from tests.support.local_worker import LocalWorker, script, until
from worker import hosting
from workflows import steps

PRICED = {
    "providers": {
        "paid": {"driver": "scripted", "prices": {"input_usd": "1000", "output_usd": "1000"}}
    }
}


def shown(worker: LocalWorker, session: str) -> SessionShown:
    """The session as the wire shows it."""
    return worker.store.read(lambda db: session_views.view(db, worker.row(session)))


def needy(worker: LocalWorker) -> list[str]:
    """The ids of the sessions that the list of needs has."""
    wanted = Filter(worker.operator_id, attention=True)
    items, _ = worker.store.read(lambda db: session_views.page(db, wanted, limit=50))
    return [one["id"] for one in items]


async def retry(worker: LocalWorker, session: str, run_id: str) -> str:
    """Run it again; the new run's id."""
    asked = Retry(command_id=new_id(), user_id=worker.operator_id, run_id=run_id)
    return (await worker.command(session, "retry", asked)).run_id or ""


async def test_a_question_of_the_model_stands_until_it_is_answered(worker: LocalWorker) -> None:
    session = worker.session()
    asks = {"call": "checkpoint", "arguments": {"reason": "Which one?"}}
    run = (await worker.send(session, script(asks, {"say": "ok"}))).run_id or ""
    row = await worker.state(session, "paused")
    needed = shown(worker, session)["attention"]
    assert needed is not None
    assert (needed["kind"], needed["text"]) == ("question", "Which one?")
    assert (needed.get("run_id"), needed.get("checkpoint_id")) == (run, row.current_checkpoint)
    assert needy(worker) == [session]
    assert worker.store.read(attention.count_by_kind) == {"question": 1}
    told = await worker.event(session, "attention.required")
    assert told.data["attention"] == needed
    await worker.resume(session, row.current_checkpoint, words="the left one")
    await worker.over(run)
    assert shown(worker, session)["attention"] is None
    assert needy(worker) == []
    assert "attention.cleared" in worker.kinds(session)


async def test_the_operators_own_pause_asks_for_nothing(worker: LocalWorker) -> None:
    session = worker.session()
    await worker.send(session, script({"call": "list_files", "hang_s": 600}))
    await worker.pause(session)
    assert shown(worker, session)["attention"] is None


@pytest.mark.parametrize("met_by", ["seen", "message", "retry"])
async def test_a_failed_run_stays_visible_until(
    worker: LocalWorker, met_by: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = HeldModel(monkeypatch)
    model.failures.append(PermanentProviderError("unauthorized", "Refused with 401."))
    model.release()
    session = worker.session()
    run = await worker.run(session, "hello")
    row = await worker.state(session, "idle")
    assert row.last_run_id == run.id
    before = shown(worker, session)
    needed, last = before["attention"], before["last_run"]
    assert needed is not None
    assert last is not None
    assert (needed["kind"], needed.get("run_id")) == ("run_failed", run.id)
    assert "401" in needed["text"]
    assert (last["id"], last["state"], last["error"]) == (run.id, "failed", run.error)
    assert last["completed_at"] == run.completed_at
    if met_by == "seen":
        worker.store.write(lambda db: attention.see(db, session))
    elif met_by == "message":
        await worker.run(session, "hello")
    else:
        await worker.over(await retry(worker, session, run.id))
    after = shown(worker, session)
    assert after["attention"] is None
    assert after["last_run"] is not None
    assert after["last_run"]["state"] == ("failed" if met_by == "seen" else "done")


async def test_a_reached_budget_asks_for_a_person(worker: LocalWorker) -> None:
    worker.config = Config.model_validate(PRICED)
    project = worker.project("primary: {model: 'paid:echo'}\nlimits: {max_cost_usd: 0.5}\n")
    session = worker.session(project)
    first = {"call": "list_files", "usage": {"input_tokens": 600, "output_tokens": 0}}
    await worker.send(session, script(first, {"say": "Done."}))
    await worker.state(session, "paused")
    needed = shown(worker, session)["attention"]
    assert needed is not None
    assert needed["kind"] == "budget"


async def test_a_host_that_is_away_is_a_need_of_the_sessions_at_work_on_it(
    worker: LocalWorker,
) -> None:
    session, idle = worker.session(), worker.session()
    for one in (session, idle):
        await worker.run(one, script({"call": "list_files"}))
    run = (await worker.send(session, script({"say": "slow", "hang_s": 600}))).run_id
    host_id = worker.row(session).host_id or ""
    await worker.lose_host()
    worker.store.write(lambda db: hosting._tell(db, "another host, which is there"))
    needed = shown(worker, session)["attention"]
    assert needed is not None
    assert (needed["kind"], needed.get("run_id")) == ("host_away", run)
    assert shown(worker, idle)["attention"] is None
    worker.store.write(lambda db: hosts.beat(db, host_id))
    worker.store.write(lambda db: hosting._tell(db, host_id))
    assert shown(worker, session)["attention"] is None
    await worker.cancel(session)


async def test_the_providers_retries_show_with_their_countdown(
    worker: LocalWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow = replace(steps.call_model, first_wait=timedelta(seconds=2))
    monkeypatch.setattr(steps, "call_model", slow)
    model = HeldModel(monkeypatch)
    model.failures.append(PassingProviderError("provider_error", "Away with 503."))
    session = worker.session()
    run = (await worker.send(session, "hello")).run_id or ""
    trouble = (await until(lambda: shown(worker, session)["trouble"], "trouble")) or {}
    assert (trouble["run_id"], trouble["attempt"], trouble["next_in_ms"]) == (run, 2, 2000)
    told = await worker.event(session, "model.retrying")
    assert {**trouble, **told.data} == trouble
    (view,) = worker.store.read(lambda db: run_views.views(db, session, [runs.get(db, run)]))
    assert view["trouble"] == trouble
    model.release()
    assert (await worker.over(run)).state == "done"
    assert shown(worker, session)["trouble"] is None
    assert (await worker.event(session, "model.recovered")).data == {"run_id": run}


async def test_trouble_is_over_with_its_run(
    worker: LocalWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    soon = timedelta(milliseconds=20)
    quick = replace(steps.call_model, first_wait=soon, longest_wait=soon)
    monkeypatch.setattr(steps, "call_model", quick)
    monkeypatch.setattr(provider_trouble, "PROVIDER_ATTEMPTS", 2)
    session = worker.session()
    run = await worker.run(session, script({"error": "connection"}))
    assert (run.state, (run.error or {})["message"]) == ("failed", UNREACHABLE)
    assert shown(worker, session)["trouble"] is None
    assert worker.kinds(session).count("model.retrying") == 1
    assert "model.recovered" not in worker.kinds(session)


async def test_a_retry_sets_aside_what_the_run_said_and_keeps_what_it_was_told(
    worker: LocalWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = HeldModel(monkeypatch)
    session = worker.session()
    run = (await worker.send(session, script({"call": "list_files"}))).run_id or ""
    await model.holds.wait()
    await worker.send(session, script({"error": 401}), when_busy="steer")
    model.release()
    await worker.over(run)
    await worker.state(session, "idle")
    again = await retry(worker, session, run)
    await worker.over(again)
    everything = {one.id: one for one in worker.messages(session, all_of_them=True)}
    live = {one.id for one in worker.messages(session)}
    gone = [one for one in everything.values() if one.run_id == run and one.id not in live]
    assert {one.role for one in gone} == {"primary", "tool"}
    assert [one.role for one in worker.messages(session)][:2] == ["operator", "operator"]
    assert worker.run_row(again).operator_message == worker.run_row(run).operator_message


async def test_only_the_last_run_is_run_again_and_only_if_it_went_wrong(
    worker: LocalWorker,
) -> None:
    session = worker.session()
    failed = await worker.run(session, script({"error": 401}))
    done = await worker.run(session, "fine")
    for run_id in (failed.id, done.id):
        with pytest.raises(Conflict, match="only the last run"):
            await retry(worker, session, run_id)
    hanging = (await worker.send(session, script({"hang_s": 600}))).run_id or ""
    with pytest.raises(Conflict):
        await retry(worker, session, hanging)
    await worker.cancel(session)
    await worker.state(session, "idle")
    await retry(worker, session, hanging)
    assert worker.row(session).state == "running"
    paused = await worker.pause(session)
    await worker.roll_back(session, paused.checkpoint_id or "")
