"""A cage that cannot be set up fails the run with the details; the session stays usable."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.local_worker import LocalWorker, script
from tests.support.stored_rows import tool_calls_of

CAGE = "cage: {fs: {read_only: [/no/such/folder]}}"
DETAILS = "the cage names a path that does not exist: /no/such/folder"
SHELL: dict[str, Any] = {"call": "shell", "arguments": {"command": "true"}}


def asking_helper(*steps: dict[str, Any]) -> dict[str, Any]:
    return {"call": "subagent", "arguments": {"name": "helper", "prompt": script(*steps)}}


@pytest.mark.req("K-136", "K-040")
async def test_a_cage_that_fails_to_spawn_fails_the_run_with_its_details(
    worker: LocalWorker,
) -> None:
    session = worker.session(worker.project(f"primary: {{model: 'scripted:echo', {CAGE}}}\n"))
    run = await worker.run(session, script(SHELL, {"say": "never"}))
    assert (run.state, run.error) == (
        "failed",
        {"code": "cage_spawn_failed", "message": DETAILS},
    )
    await worker.state(session, "idle")
    (call,) = worker.store.read(lambda db: tool_calls_of(db, run.id))
    assert call.state == "failed"
    assert "never" not in worker.texts(session)
    assert (await worker.run(session, "go on")).state == "done"


@pytest.mark.req("K-136")
async def test_a_subagents_cage_that_fails_to_spawn_fails_the_run(worker: LocalWorker) -> None:
    team = f"subagents: {{helper: {{model: 'scripted:echo', {CAGE}}}}}"
    session = worker.session(worker.project(f"primary: {{model: 'scripted:echo', {team}}}\n"))
    run = await worker.run(session, script(asking_helper(SHELL), {"say": "never"}))
    assert (run.state, run.error) == (
        "failed",
        {"code": "cage_spawn_failed", "message": f"Subagent helper: {DETAILS}"},
    )
    await worker.state(session, "idle")
    assert (await worker.event(session, "subagent.finished")).data["state"] == "failed"
    assert "never" not in worker.texts(session)


@pytest.mark.req("K-136")
async def test_the_cage_of_a_nested_subagent_fails_the_run_too(worker: LocalWorker) -> None:
    inner = f"subagents: {{helper: {{model: 'scripted:echo', {CAGE}}}}}"
    outer = f"subagents: {{helper: {{model: 'scripted:echo', {inner}}}}}"
    session = worker.session(worker.project(f"primary: {{model: 'scripted:echo', {outer}}}\n"))
    nested = asking_helper(asking_helper(SHELL), {"say": "never"})
    run = await worker.run(session, script(nested, {"say": "never"}))
    assert run.state == "failed"
    assert (run.error or {})["code"] == "cage_spawn_failed"
    assert DETAILS in (run.error or {})["message"]
