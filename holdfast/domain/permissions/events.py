"""Audit events of approvals and permissions."""

from __future__ import annotations

from dataclasses import dataclass

from holdfast.domain.events import Event


@dataclass(frozen=True, kw_only=True)
class ApprovalRequested(Event):
    kind = "approval.requested"
    approval_id: str
    session_id: str
    run_id: str
    tool_call_id: str
    agent_path: str
    tool: str
    title: str
    expires_at: int | None


@dataclass(frozen=True, kw_only=True)
class ApprovalDecided(Event):
    kind = "approval.decided"
    approval_id: str
    session_id: str
    tool_call_id: str
    state: str
    decided_by: str | None
    rule_id: str | None = None


@dataclass(frozen=True, kw_only=True)
class PermissionRemembered(Event):
    kind = "permission.remembered"
    rule_id: str
    scope: str
    tool: str
    pattern: str | None
    effect: str
    approval_id: str
    user_id: str


@dataclass(frozen=True, kw_only=True)
class PermissionForgotten(Event):
    kind = "permission.forgotten"
    rule_id: str
    scope: str
    user_id: str


@dataclass(frozen=True, kw_only=True)
class PermissionApplied(Event):
    kind = "permission.applied"
    tool_call_id: str
    agent_path: str
    effect: str
    rule: str
    rule_id: str | None
