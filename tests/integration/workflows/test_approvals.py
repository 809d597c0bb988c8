"""Calls that are asked about: they wait, are answered once, and are made once."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from holdfast.settings.config import Approvals
from holdfast.storage.approvals import permissions
from holdfast.storage.moves import timeline
from holdfast.storage.moves.timeline import SpanShown
from holdfast.storage.sessions import runs, sessions
from tests.support.control.asked_calls import decide, pending, stands
from tests.support.local_worker import LocalWorker, script
from tests.support.stored_rows import tool_calls_of

PUSH = {"call": "shell", "arguments": {"command": "echo pushed >> pushes"}}
READ = {"call": "list_files", "arguments": {}}
ASKED = 'permissions: [{tool: shell, pattern: "echo *", effect: ask}]'


def session_with(worker: LocalWorker, permissions: str = ASKED, more: str = "") -> str:
    body = f"{more}primary:\n  model: 'scripted:echo'\n  cage: disabled\n  {permissions}\n"
    return worker.session(worker.project(body))


def pushes(worker: LocalWorker, session_id: str) -> list[str]:
    """What the asked call wrote, a line for each time it was made."""
    written = Path(worker.row(session_id).working_directory) / "pushes"
    return written.read_text().splitlines() if written.exists() else []


def spans(worker: LocalWorker, session_id: str) -> list[SpanShown]:
    return worker.store.read(
        lambda db: timeline.spans(db, session_id, runs.of_session(db, session_id, limit=10))
    )


async def test_an_allowed_call_is_made_once_and_the_run_goes_on(worker: LocalWorker) -> None:
    session = session_with(worker)
    sent = await worker.send(session, script(PUSH, {"say": "done"}))
    approval = await pending(worker, session)
    assert (worker.row(session).state, pushes(worker, session)) == ("running", [])
    needed = worker.row(session).attention or {}
    assert (needed["kind"], needed["approval_id"]) == ("approval", approval.id)
    assert needed["text"] == approval.title
    assert (approval.command, approval.kind) == ("echo pushed >> pushes", "execute")
    assert (approval.expires_at, approval.reason) == (None, "ask shell 'echo *'")
    assert await decide(worker, approval, "allow") == "allowed"
    assert worker.row(session).attention is None
    (asked,) = [span for span in spans(worker, session) if span["kind"] == "approval"]
    assert (asked["parent"], asked["state"]) == (approval.tool_call_id, "allowed")
    assert (asked["end"] or 0) >= asked["start"]
    assert (await worker.over(sent.run_id or "")).state == "done"
    assert pushes(worker, session) == ["pushed"]
    assert await decide(worker, approval, "deny") == "allowed"
    assert stands(worker, approval).state == "allowed"
    kinds = worker.kinds(session)
    assert kinds.count("approval.requested") == kinds.count("approval.decided") == 1
    assert kinds.index("approval.requested") < kinds.index("approval.decided")


async def test_a_denial_reaches_the_model_with_its_note(worker: LocalWorker) -> None:
    session = session_with(worker)
    sent = await worker.send(session, script(PUSH, {"say": "understood"}))
    await decide(worker, await pending(worker, session), "deny", note="not on Fridays")
    run = await worker.over(sent.run_id or "")
    (call,) = worker.store.read(lambda db: tool_calls_of(db, run.id))
    assert (run.state, call.state, pushes(worker, session)) == ("done", "failed", [])
    assert any("not on Fridays" in text for text in worker.texts(session))
    assert "understood" in worker.texts(session)[-1]


async def test_a_rule_denies_without_asking_and_says_which(worker: LocalWorker) -> None:
    session = session_with(worker, 'permissions: [{tool: execute, effect: deny, pattern: "echo*"}]')
    run = await worker.run(session, script(PUSH, {"say": "oh"}))
    assert (run.state, pushes(worker, session)) == ("done", [])
    assert any("deny execute 'echo*'" in text for text in worker.texts(session))
    (applied,) = [one for one in worker.events(session) if one.kind == "permission.applied"]
    assert applied.data["effect"] == "deny"
    assert "approval.requested" not in worker.kinds(session)


async def test_while_it_waits_it_survives_the_loss_of_worker_and_workflow(
    worker: LocalWorker,
) -> None:
    session = session_with(worker)
    sent = await worker.send(session, script(PUSH, {"say": "done"}))
    approval = await pending(worker, session)
    await worker.stop_worker()
    await worker.start_worker()
    await worker.handle(session).terminate("Temporal's file was lost")
    await worker.sessions.start(worker.row(session))
    assert await decide(worker, approval, "allow") == "allowed"
    assert (await worker.over(sent.run_id or "")).state == "done"
    assert pushes(worker, session) == ["pushed"]
    assert worker.kinds(session).count("approval.requested") == 1


@pytest.mark.parametrize("how", ["cancel", "end"])
async def test_the_end_of_its_run_withdraws_it(worker: LocalWorker, how: str) -> None:
    session = session_with(worker)
    sent = await worker.send(session, script(PUSH, {"say": "done"}))
    approval = await pending(worker, session)
    if how == "cancel":
        await worker.cancel(session)
    else:
        await worker.plain(session, "end")
    run = await worker.over(sent.run_id or "")
    assert (run.state, stands(worker, approval).state) == ("cancelled", "withdrawn")
    assert await decide(worker, approval, "allow") == "withdrawn"
    assert pushes(worker, session) == []
    assert not worker.row(session).without_slot


async def test_an_answer_during_a_pause_takes_effect_after_it(worker: LocalWorker) -> None:
    session = session_with(worker)
    sent = await worker.send(session, script(PUSH, {"say": "done"}))
    approval = await pending(worker, session)
    await worker.pause(session)
    assert await decide(worker, approval, "allow") == "allowed"
    assert (worker.row(session).state, pushes(worker, session)) == ("paused", [])
    await worker.resume(session, worker.row(session).current_checkpoint)
    assert (await worker.over(sent.run_id or "")).state == "done"
    assert pushes(worker, session) == ["pushed"]


async def test_a_session_that_waits_holds_no_slot_and_goes_on_when_there_is_one(
    worker: LocalWorker,
) -> None:
    session = session_with(worker, more="limits: {running_sessions: 1}\n")
    sent = await worker.send(session, script(PUSH, {"say": "done"}))
    approval = await pending(worker, session)
    project_id = worker.row(session).project_id
    assert worker.store.read(lambda db: sessions.project_slots(db, project_id)) == (0, 1)
    other = worker.session(project_id)
    busy = await worker.send(other, script({"say": "x", "hang_s": 600}))
    assert busy.queued is False
    assert await decide(worker, approval, "allow") == "allowed"
    third = worker.session(project_id)
    assert (await worker.send(third, script({"say": "y"}))).queued
    assert (worker.row(session).without_slot, pushes(worker, session)) == (True, [])
    await worker.cancel(other)
    assert (await worker.over(sent.run_id or "")).state == "done"
    assert pushes(worker, session) == ["pushed"]
    assert "session.crash_recovered" not in worker.kinds(session), "it was begun with the slot"


async def test_a_remembered_answer_holds_for_later_calls_of_its_scope(worker: LocalWorker) -> None:
    session = session_with(worker)
    again = {"call": "shell", "arguments": {"command": "echo again"}}
    sent = await worker.send(session, script(again, again, {"say": "done"}))
    approval = await pending(worker, session)
    await decide(worker, approval, "allow", remember="project", pattern="echo a*")
    assert (await worker.over(sent.run_id or "")).state == "done"
    assert worker.kinds(session).count("approval.requested") == 1
    assert worker.kinds(session).count("permission.applied") == 1
    other = worker.session(worker.row(session).project_id)
    assert (await worker.run(other, script(again, {"say": "done"}))).state == "done"
    (rule,) = worker.store.read(
        lambda db: permissions.of_project(db, worker.row(session).project_id)
    )
    assert (rule.pattern, rule.effect, rule.id) == ("echo a*", "allow", approval.id)
    assert stands(worker, approval).rule_id == rule.id


async def test_by_default_exactly_the_same_call_is_remembered(worker: LocalWorker) -> None:
    session = session_with(worker)
    first = {"call": "shell", "arguments": {"command": "echo a*"}}
    second = {"call": "shell", "arguments": {"command": "echo aa"}}
    sent = await worker.send(session, script(first, first, second, {"say": "done"}))
    await decide(worker, await pending(worker, session), "allow", remember="session")
    approval = await pending(worker, session)
    assert approval.command == "echo aa"
    await decide(worker, approval, "deny", remember="session")
    assert (await worker.over(sent.run_id or "")).state == "done"
    run = await worker.run(session, script(second, {"say": "done"}))
    (call,) = worker.store.read(lambda db: tool_calls_of(db, run.id))
    assert call.state == "failed"
    assert worker.kinds(session).count("approval.requested") == 2


async def test_an_edit_is_shown_as_a_diff_and_made_as_it_was_shown(worker: LocalWorker) -> None:
    session = session_with(worker, 'permissions: [{tool: edit, effect: ask, pattern: "*.txt"}]')
    folder = Path(worker.row(session).working_directory)
    (folder / "a.txt").write_text("one\ntwo\n")
    edit = {"path": "a.txt", "old_string": "two", "new_string": "three"}
    sent = await worker.send(
        session, script({"call": "edit_file", "arguments": edit}, {"say": "done"})
    )
    approval = await pending(worker, session)
    assert approval.diff == "--- a/a.txt\n+++ b/a.txt\n@@ -1,2 +1,2 @@\n one\n-two\n+three\n"
    assert (approval.paths, approval.cwd) == (["a.txt"], str(folder))
    await decide(worker, approval, "allow")
    await worker.over(sent.run_id or "")
    assert (folder / "a.txt").read_text() == "one\nthree\n"


async def test_it_expires_when_nobody_answers_in_time(worker: LocalWorker) -> None:
    object.__setattr__(worker.config, "approvals", Approvals(expire_hours=1 / 3_600))
    session = session_with(worker)
    run = await worker.run(session, script(PUSH, {"say": "too late"}))
    assert (run.state, pushes(worker, session)) == ("done", [])
    (decided,) = [one for one in worker.events(session) if one.kind == "approval.decided"]
    assert (decided.data["state"], decided.data["decided_by"]) == ("expired", None)
    assert any("Nobody answered in time" in text for text in worker.texts(session))


SUBAGENTS = """permissions: [{tool: subagent, pattern: "guarded", effect: ask}]
  subagents:
    helper:
      model: 'scripted:echo'
      cage: {walltime_s: 2}
      permissions: [{tool: list_files, effect: ask}]
    guarded: {model: 'scripted:echo', cage: disabled}"""


def helped(name: str, *steps: dict[str, Any]) -> dict[str, Any]:
    prompt = json.dumps({"script": list(steps)})
    return {"call": "subagent", "arguments": {"name": name, "prompt": prompt}}


async def test_a_subagents_call_is_asked_about_with_its_path(worker: LocalWorker) -> None:
    """Its walltime stands still meanwhile, and the session holds no slot."""
    session = session_with(worker, SUBAGENTS)
    sent = await worker.send(session, script(helped("helper", READ, {"say": "seen"})))
    approval = await pending(worker, session)
    assert approval.agent_path == "primary.subagents.helper"
    assert worker.row(session).without_slot
    await decide(worker, approval, "allow")
    run = await worker.over(sent.run_id or "")
    assert run.state == "done", run.error
    assert any("seen" in text for text in worker.texts(session))
    assert not worker.row(session).without_slot


async def test_a_call_of_a_subagent_is_asked_about_before_the_subagent_begins(
    worker: LocalWorker,
) -> None:
    session = session_with(worker, SUBAGENTS)
    steps = (helped("guarded", {"say": "inside"}), helped("guarded", {"say": "inside"}))
    sent = await worker.send(session, script(*steps, {"say": "done"}))
    approval = await pending(worker, session)
    assert (approval.tool, approval.title) == ("subagent", "subagent: guarded")
    assert "subagent.started" not in worker.kinds(session)
    await decide(worker, approval, "deny", note="do it yourself")
    await decide(worker, await pending(worker, session), "allow")
    assert (await worker.over(sent.run_id or "")).state == "done"
    assert worker.kinds(session).count("subagent.started") == 1
    assert any("do it yourself" in text for text in worker.texts(session))
