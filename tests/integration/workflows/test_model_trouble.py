"""What a run makes of its model: errors, retries, limits, budgets, overrides and bills."""

from __future__ import annotations

import threading
import time
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from temporalio.common import RetryPolicy
from temporalio.testing import ActivityEnvironment

from activities import provider_trouble
from holdfast.agent.errors import UNREACHABLE, PassingProviderError
from holdfast.domain.errors import Conflict
from holdfast.settings.config import Config
from holdfast.storage.sessions import calls, titles
from tests.support.local_worker import LocalWorker, script
from workflows import steps

PRICED = {
    "providers": {
        "paid": {"driver": "scripted", "prices": {"input_usd": "1000", "output_usd": "1000"}}
    }
}


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Retries without the waits of real life, and three of them."""
    soon = timedelta(milliseconds=20)
    quick = replace(steps.call_model, first_wait=soon, longest_wait=soon)
    monkeypatch.setattr(steps, "call_model", quick)
    monkeypatch.setattr(provider_trouble, "PROVIDER_ATTEMPTS", 3)


@pytest.mark.req("K-040", "K-018")
async def test_a_permanent_error_fails_the_run_at_once_with_the_providers_words(
    worker: LocalWorker,
) -> None:
    session = worker.session()
    run = await worker.run(session, script({"error": 401}))
    assert run.state == "failed"
    assert run.error is not None
    assert "401" in run.error["message"]
    assert (await worker.state(session, "idle")).active_run is None
    attention = await worker.event(session, "attention.required")
    assert attention.data["attention_kind"] == "run_failed"
    assert (await worker.run(session, "better now?")).state == "done"


@pytest.mark.req("K-135")
@pytest.mark.usefixtures("impatient")
async def test_a_passing_error_is_tried_again_and_then_fails_the_run(worker: LocalWorker) -> None:
    session = worker.session()
    run = await worker.run(session, script({"error": "connection"}))
    assert run.state == "failed"
    assert run.error == {"code": "provider_unreachable", "message": UNREACHABLE}
    await worker.state(session, "idle")
    assert worker.kinds(session).count("session.crash_recovered") == 0, "nothing crashed"


@pytest.mark.req("K-135")
@pytest.mark.parametrize("asked_s", [None, 1.0, 5.0, 600.0])
def test_a_rate_limit_of_a_minute_is_outlasted_whatever_wait_the_provider_asks_for(
    asked_s: float | None,
) -> None:
    environment, waited, tries = ActivityEnvironment(), timedelta(), 0
    policy = RetryPolicy(
        initial_interval=steps.call_model.first_wait,
        maximum_interval=steps.call_model.longest_wait,
    )
    limited = PassingProviderError("rate_limited", "slow down", retry_after_s=asked_s)
    while True:
        tries += 1
        environment.info = replace(environment.info, attempt=tries, retry_policy=policy)
        failure = environment.run(provider_trouble.as_failure, limited)
        if failure.non_retryable:
            break
        own = policy.initial_interval * 2 ** (tries - 1)
        waited += failure.next_retry_delay or min(own, steps.call_model.longest_wait)
    assert timedelta(minutes=1) < waited < timedelta(minutes=9)
    assert tries <= steps.call_model.attempts


async def test_the_description_of_a_call_is_written_before_its_failure_is_told(
    worker: LocalWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    failing, written = threading.Event(), threading.Event()
    put, tell = worker.store.blobs.put_json, provider_trouble.as_failure

    def slowly(value: Any) -> Any:
        if "request_version" not in value:
            return put(value)
        assert failing.wait(60)
        time.sleep(0.2)  # whoever does not wait for this thread is done long before
        blob = put(value)
        written.set()
        return blob

    def told(error: Any) -> Any:
        failing.set()
        return tell(error)

    monkeypatch.setattr(worker.store.blobs, "put_json", slowly)
    monkeypatch.setattr(provider_trouble, "as_failure", told)
    run = await worker.run(worker.session(), script({"error": 401}))
    assert (run.state, written.is_set()) == ("failed", True)


@pytest.mark.usefixtures("impatient")
async def test_words_of_an_attempt_that_broke_off_are_kept_aside(
    worker: LocalWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(provider_trouble, "PROVIDER_ATTEMPTS", 2)
    session = worker.session()
    run = await worker.run(session, script({"say": "Half an ans", "drop": True}))
    assert run.state == "failed"
    everything = worker.messages(session, all_of_them=True)
    halves = [one for one in everything if one.content == "Half an ans"]
    assert len(halves) == 2
    assert all(one.meta["partial"] for one in halves)
    assert len(worker.messages(session)) == 1


async def test_a_run_stops_at_its_last_step(worker: LocalWorker) -> None:
    project = worker.project("primary: {model: 'scripted:echo'}\nlimits: {max_steps: 3}\n")
    session = worker.session(project)
    run = await worker.run(session, script({"repeat": 10, "step": {"call": "list_files"}}))
    assert (run.state, run.steps) == ("failed", 3)
    assert run.error is not None
    assert run.error["code"] == "max_steps_reached"


async def test_a_reached_budget_pauses_the_session_at_a_checkpoint(worker: LocalWorker) -> None:
    worker.config = Config.model_validate(PRICED)
    project = worker.project("primary: {model: 'paid:echo'}\nlimits: {max_cost_usd: 0.5}\n")
    session = worker.session(project)
    usage = {"input_tokens": 600, "output_tokens": 0}
    first = {"call": "list_files", "usage": usage}
    run = (await worker.send(session, script(first, {"say": "Done."}))).run_id or ""
    row = await worker.state(session, "paused")
    made = await worker.event(session, "checkpoint.created")
    assert (made.data["created_by"], made.data["reason"]) == ("budget", "budget_reached")
    await worker.resume(session, row.current_checkpoint)
    assert (await worker.over(run)).state == "done"


async def test_a_budget_of_a_run_pauses_that_run(worker: LocalWorker) -> None:
    worker.config = Config.model_validate(PRICED)
    project = worker.project("primary: {model: 'paid:echo'}\nlimits: {max_cost_usd_per_run: 0.5}\n")
    session = worker.session(project)
    first = {"call": "list_files", "usage": {"input_tokens": 600, "output_tokens": 0}}
    await worker.send(session, script(first, {"say": "Done."}))
    await worker.state(session, "paused")
    await worker.cancel(session)
    await worker.state(session, "idle")
    assert (await worker.run(session, script({"say": "cheap"}))).state == "done"


@pytest.mark.req("K-129", "K-130")
async def test_an_override_of_the_model_stays_until_it_is_taken_away(worker: LocalWorker) -> None:
    worker.config = Config.model_validate(PRICED)
    session = worker.session()
    await worker.run(session, "one")
    await worker.run(session, "two", model="paid:echo")
    assert worker.row(session).model_override == "paid:echo"
    await worker.run(session, "three")
    models = [one.model for one in worker.messages(session) if one.role == "primary"]
    assert models == ["scripted:echo", "paid:echo", "paid:echo"]


@pytest.mark.req("K-130")
async def test_an_override_of_a_refused_message_changes_nothing(worker: LocalWorker) -> None:
    worker.config = Config.model_validate(PRICED)
    session = worker.session()
    await worker.send(session, script({"hang_s": 60}))
    with pytest.raises(Conflict):
        await worker.send(session, "no", model="paid:echo")
    assert worker.row(session).model_override is None


@pytest.mark.req("K-103", "K-039")
async def test_usage_and_cost_add_up_from_calls_to_run_and_session(worker: LocalWorker) -> None:
    worker.config = Config.model_validate(PRICED)
    session = worker.session(worker.project("primary: {model: 'paid:echo'}\n"))
    used = {"input_tokens": 100, "output_tokens": 10}
    run = await worker.run(
        session, script({"call": "list_files", "usage": used}, {"say": "Done.", "usage": used})
    )
    row = await worker.state(session, "idle")
    assert (run.tokens_in, run.tokens_out, run.steps) == (200, 20, 2)
    assert (row.input_tokens, row.output_tokens, row.api_calls) == (200, 20, 2)
    assert run.cost_usd == pytest.approx(0.22)
    assert worker.store.read(lambda db: calls.cost_of_run(db, run.id)) == pytest.approx(0.22)
    completed = await worker.event(session, "run.completed")
    assert completed.data["tokens"] == {"input": 200, "output": 20}


async def test_a_title_of_the_operator_is_never_replaced(worker: LocalWorker) -> None:
    named, unnamed = worker.session(), worker.session()
    worker.store.write(lambda db: titles.set_title(db, named, "My title"))
    await worker.run(named, "what is this about?")
    await worker.run(unnamed, "what is this about?")
    assert worker.row(named).title == "My title"
    assert worker.row(unnamed).title == "what is this about?"
