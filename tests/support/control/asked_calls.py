"""Calls that wait for an operator: found, answered, and looked at again."""

from __future__ import annotations

from typing import Any

from holdfast.domain.ids import new_id
from holdfast.domain.permissions.approval_steps import Decide
from holdfast.storage.approvals import approvals
from holdfast.storage.database.tables_approvals import Approval
from tests.support.local_worker import LocalWorker, until


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


def stands(worker: LocalWorker, approval: Approval) -> Approval:
    """The approval as it is now."""
    found = worker.store.read(lambda db: approvals.find(db, approval.id))
    assert found is not None
    return found
