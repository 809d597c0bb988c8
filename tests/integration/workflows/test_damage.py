"""Damage of the store fails the session, whoever meets it."""

from __future__ import annotations

import pytest
from sqlalchemy import text

from holdfast.temporal.updates import WorkflowBroken
from tests.support.blob_files import damage_prompt
from tests.support.local_worker import LocalWorker, script

TEAM = "primary: {model: 'scripted:echo', subagents: {helper: {model: 'scripted:echo'}}}\n"


@pytest.mark.req("K-024", "K-139")
async def test_damage_met_by_a_command_fails_the_session_and_its_run(worker: LocalWorker) -> None:
    session = worker.session()
    run = (await worker.send(session, script({"hang_s": 60}))).run_id or ""
    broken = (
        "CREATE TRIGGER broken BEFORE INSERT ON checkpoints BEGIN"
        " SELECT RAISE(ABORT, 'database disk image is malformed'); END"
    )
    worker.store.write(lambda db: db.connection().execute(text(broken)))
    with pytest.raises(WorkflowBroken):
        await worker.pause(session)
    row = worker.row(session)
    assert row.state == "failed"
    assert (row.failure or {})["code"] == "store_damaged"
    ended = worker.run_row(run)
    assert (ended.state, ended.error) == ("failed", row.failure)
    assert "run.cancelled" not in worker.kinds(session)


@pytest.mark.req("K-024", "K-139")
async def test_damage_met_by_a_subagent_fails_the_session(worker: LocalWorker) -> None:
    session = worker.session(worker.project(TEAM))
    damage_prompt(worker.store, session, "primary.subagents.helper")
    ask = {"call": "subagent", "arguments": {"name": "helper", "prompt": "help"}}
    await worker.send(session, script(ask, {"say": "never"}))
    row = await worker.state(session, "failed")
    assert (row.failure or {})["code"] == "store_damaged"
