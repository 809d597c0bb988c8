"""The short step of an approval: an answer, or that none came in time. The first one wins."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

from temporalio import activity

from activities.refusals import answering
from holdfast.domain.clock import now_ms
from holdfast.domain.errors import NotFound
from holdfast.domain.permissions.approval_steps import Decided, DecideStep
from holdfast.domain.permissions.globs import escaped
from holdfast.storage.approvals import approvals, permissions
from holdfast.storage.database.blobs import BlobStore
from holdfast.storage.database.engine import Db
from holdfast.storage.database.opening import OpenStore
from holdfast.storage.database.tables import Operator
from holdfast.storage.database.tables_approvals import Approval, PermissionRow
from holdfast.storage.sessions import attention, sessions

STATES: dict[str, approvals.State] = {"allow": "allowed", "deny": "denied"}


@dataclass(frozen=True)
class Words:
    """What the operator wrote beside the answer."""

    note: str | None = None
    pattern: str | None = None


class ApprovalActivities:
    """Answers to approvals."""

    def __init__(self, store: OpenStore) -> None:
        self.store = store

    @activity.defn(name="decide_approval")
    @answering
    async def decide_approval(self, step: DecideStep) -> Decided:
        """Store an answer. Safe to repeat: what was answered stays as it is."""
        words = await asyncio.to_thread(read_words, self.store.blobs, step.words_id)
        return await self.store.awrite(lambda db: decide(db, step, words))


def read_words(blobs: BlobStore, words_id: str | None) -> Words:
    """The words that the API staged, if there are any."""
    if words_id is None:
        return Words()
    value: dict[str, Any] = blobs.read_json(words_id)
    return Words(value.get("note"), value.get("pattern"))


def decide(db: Db, step: DecideStep, words: Words) -> Decided:
    """Answer what is pending, and remember the answer where that is asked for."""
    approval = approvals.find(db, step.approval_id)
    if approval is None or approval.session_id != step.session_id:
        raise NotFound("no such approval")
    if approval.state == approvals.PENDING:
        if step.decision == "expire":
            _expire(db, approval)
        else:
            _answer(db, approval, step, words)
        attention.look_again(db, step.session_id)
    found = approvals.find(db, step.approval_id)
    assert found is not None, "it was there before"
    return Decided(state=found.state, invocation_id=found.invocation_id)


def _expire(db: Db, approval: Approval) -> None:
    if approval.expires_at is not None and approval.expires_at <= now_ms():
        approvals.decide(db, approval.id, "expired", decided_by=None)


def _answer(db: Db, approval: Approval, step: DecideStep, words: Words) -> None:
    who = db.get(Operator, step.user_id)
    rule_id = approval.id if step.remember is not None else None
    if rule_id is not None:
        _remember(db, approval, step, words)
    approvals.decide(
        db,
        approval.id,
        STATES[step.decision],
        decided_by=step.user_id if who is None else who.name,
        note=words.note,
        rule_id=rule_id,
    )


def _remember(db: Db, approval: Approval, step: DecideStep, words: Words) -> None:
    """The answer holds for calls like this one: by default for exactly this one."""
    session = sessions.get(db, approval.session_id)
    named = str(approval.input.get("name", "")) if approval.tool == "subagent" else ""
    exact = approval.command or next(iter(approval.paths), named)
    rule = PermissionRow(
        id=approval.id,
        scope=step.remember or "session",
        operator_id=session.created_by,
        session_id=session.id,
        project_id=session.project_id,
        tool=approval.tool,
        pattern=words.pattern or escaped(exact.strip()) or None,
        effect=step.decision,
        made_from=approval.id,
    )
    permissions.remember(db, rule, user_id=step.user_id)
