"""Calls that are asked about: they wait, are answered once, and are made once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from holdfast.domain.ids import new_id
from holdfast.domain.permissions.approval_steps import Decide
from holdfast.storage.approvals import approvals
from holdfast.storage.database.tables_approvals import Approval
from tests.support.local_worker import LocalWorker, script, until
from tests.support.stored_rows import tool_calls_of

PUSH = {"call": "shell", "arguments": {"command": "echo pushed >> pushes"}}
ASKED = 'permissions: [{tool: shell, pattern: "echo *", effect: ask}]'


def session_with(worker: LocalWorker, permissions: str = ASKED, more: str = "") -> str:
    body = f"{more}primary:\n  model: 'scripted:echo'\n  cage: disabled\n  {permissions}\n"
    return worker.session(worker.project(body))


async def pending(worker: LocalWorker, session_id: str) -> Approval:
    """The oldest approval that a session waits for, once there is one."""
    return await until(
        lambda: worker.store.read(lambda db: approvals.oldest_pending(db, session_id)),
        "an approval",
    )


async def decide(worker: LocalWorker, approval: Approval, decision: str, **fields: Any) -> str:
    """Answer an approval as the API does; how it stands then."""
    words = {name: fields.pop(name) for name in ("note", "pattern") if name in fields}
    words_id = worker.store.blobs.put_json(words).id if words else None
    command = Decide(
        command_id=new_id(),
        user_id=worker.operator_id,
        approval_id=approval.id,
        decision=decision,
        words_id=words_id,
        **fields,
    )
    answer = await worker.command(approval.session_id, "decide", command)
    return answer.reason or ""


def pushes(worker: LocalWorker, session_id: str) -> list[str]:
    """What the asked call wrote, a line for each time it was made."""
    written = Path(worker.row(session_id).working_directory) / "pushes"
    return written.read_text().splitlines() if written.exists() else []


async def test_an_allowed_call_is_made_once_and_the_run_goes_on(worker: LocalWorker) -> None:
    session = session_with(worker)
    sent = await worker.send(session, script(PUSH, {"say": "done"}))
    approval = await pending(worker, session)
    assert (worker.row(session).state, pushes(worker, session)) == ("running", [])
    assert (approval.command, approval.kind) == ("echo pushed >> pushes", "execute")
    assert await decide(worker, approval, "allow") == "allowed"
    assert (await worker.over(sent.run_id or "")).state == "done"
    assert pushes(worker, session) == ["pushed"]
    kinds = worker.kinds(session)
    assert kinds.index("approval.requested") < kinds.index("approval.decided")


async def test_a_denial_reaches_the_model_with_its_note(worker: LocalWorker) -> None:
    session = session_with(worker)
    sent = await worker.send(session, script(PUSH, {"say": "understood"}))
    approval = await pending(worker, session)
    await decide(worker, approval, "deny", note="not on Fridays")
    run = await worker.over(sent.run_id or "")
    (call,) = worker.store.read(lambda db: tool_calls_of(db, run.id))
    assert (run.state, call.state, pushes(worker, session)) == ("done", "failed", [])
    assert any("not on Fridays" in text for text in worker.texts(session))
    assert "understood" in worker.texts(session)[-1]
