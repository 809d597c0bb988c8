"""Approvals: calls that wait for the operator's word, and the answers that are remembered."""

from __future__ import annotations

import asyncio
from typing import Annotated, Literal

from fastapi import APIRouter, Depends, Path, Query
from pydantic import Field, model_validator
from typing_extensions import TypedDict

from api.dependencies import (
    CommandId,
    CommandsDep,
    CurrentOperator,
    PageCursor,
    PageLimit,
    StoreDep,
    find_own,
)
from api.errors import documented
from api.models import RequestBody, Text
from api.openapi import AnswerRoute
from api.paging import cut, read_time
from holdfast.domain.errors import ValidationFailed
from holdfast.domain.permissions.approval_steps import Decide
from holdfast.domain.project_file import PATTERN_CHARS_MAX
from holdfast.storage.approvals import approvals, permissions
from holdfast.storage.approvals.approvals import PENDING, ApprovalShown, State
from holdfast.storage.approvals.permissions import PermissionShown
from holdfast.storage.database.engine import Db
from holdfast.storage.database.opening import OpenStore
from holdfast.storage.database.tables import Operator
from holdfast.storage.database.tables_approvals import Approval, PermissionRow
from holdfast.storage.projects import projects
from holdfast.storage.sessions import sessions
from holdfast.storage.sessions.session_views import make_cursor

router = APIRouter(tags=["approvals"], route_class=AnswerRoute)
NOTE_CHARS_MAX = 4000
STATES: dict[str, State] = {"allow": "allowed", "deny": "denied"}
ApprovalId = Annotated[str, Path(min_length=1, max_length=64)]
SessionName = Annotated[str | None, Query(min_length=1, max_length=256)]


class ApprovalsShown(TypedDict):
    """A page of approvals."""

    items: list[ApprovalShown]
    next_cursor: str | None


class PermissionsShown(TypedDict):
    """Remembered rules; those of a session or project are few enough for one page."""

    items: list[PermissionShown]
    next_cursor: str | None


class Decision(RequestBody):
    """The operator's word on a call."""

    decision: Literal["allow", "deny"]
    note: Annotated[Text, Field(max_length=NOTE_CHARS_MAX)] | None = None
    remember: Literal["session", "project"] | None = None
    pattern: Annotated[Text, Field(min_length=1, max_length=PATTERN_CHARS_MAX)] | None = None

    @model_validator(mode="after")
    def check_pattern(self) -> Decision:
        """A pattern is of a rule that is remembered."""
        if self.pattern is not None and self.remember is None:
            raise ValueError("pattern needs remember")
        return self


class Holder:
    """Whose remembered rules: one session's or one project's."""

    def __init__(
        self,
        session_id: SessionName = None,
        project_id: Annotated[str | None, Query(min_length=1, max_length=64)] = None,
    ) -> None:
        self.session_id, self.project_id = session_id, project_id

    def rules(self, db: Db, operator_id: str) -> list[PermissionRow]:
        """The rules, or a Refusal when it is not one of the operator's own."""
        if (self.session_id is None) == (self.project_id is None):
            raise ValidationFailed("give either session_id or project_id")
        if self.session_id is not None:
            return permissions.of_session(db, find_own(db, operator_id, self.session_id).id)
        return permissions.of_project(db, projects.get(db, operator_id, self.project_id or "").id)


HolderDep = Annotated[Holder, Depends(Holder)]


@router.get("/approvals", responses=documented(404))
async def list_approvals(
    operator: CurrentOperator,
    store: StoreDep,
    state: Annotated[Literal["pending", "all"], Query()] = "pending",
    session_id: SessionName = None,
    limit: PageLimit = 50,
    cursor: PageCursor = None,
) -> ApprovalsShown:
    """The calls of the caller's sessions that wait for a word, or did, oldest first."""

    def page(db: Db) -> ApprovalsShown:
        own = None if session_id is None else find_own(db, operator.id, session_id).id
        found = approvals.page(
            db,
            operator.id,
            limit=limit + 1,
            pending=state == "pending",
            session_id=own,
            after=read_time(cursor),
        )
        rows, following = cut(found, limit, lambda row: make_cursor(row.asked_at, row.id))
        return {"items": [approvals.view(row) for row in rows], "next_cursor": following}

    return await store.aread(page)


@router.get("/approvals/{approval_id}", responses=documented(404))
async def show_approval(
    approval_id: ApprovalId, operator: CurrentOperator, store: StoreDep
) -> ApprovalShown:
    """One approval."""
    return approvals.view(await _own(store, operator, approval_id))


@router.post("/approvals/{approval_id}", responses=documented(404, 409))
async def decide_approval(
    approval_id: ApprovalId,
    body: Decision,
    operator: CurrentOperator,
    commands: CommandsDep,
    store: StoreDep,
    command_id: CommandId,
) -> ApprovalShown:
    """Allow or deny the call. The first answer wins: the same again is 200, another is 409."""
    approval = await _own(store, operator, approval_id)
    if approval.state == PENDING:
        session = await store.aread(lambda db: sessions.get(db, approval.session_id))
        command = Decide(
            command_id=command_id,
            user_id=operator.id,
            approval_id=approval.id,
            decision=body.decision,
            remember=body.remember,
            words_id=await _stage_words(store, body),
        )
        await commands.send(session, "decide", command)
        approval = await _own(store, operator, approval_id)
    return approvals.view(approvals.repeated(approval, STATES[body.decision]))


@router.get("/permissions", responses=documented(404))
async def list_permissions(
    operator: CurrentOperator, store: StoreDep, holder: HolderDep
) -> PermissionsShown:
    """The rules that were remembered for a session alone, or for a project."""
    rows = await store.aread(lambda db: holder.rules(db, operator.id))
    return _shown(rows)


@router.delete("/permissions", responses=documented(404))
async def forget_permissions(
    operator: CurrentOperator,
    store: StoreDep,
    holder: HolderDep,
    rule_id: Annotated[str | None, Query(alias="id", min_length=1, max_length=64)] = None,
) -> PermissionsShown:
    """Forget the rule with this `id`, or all of them; the answer holds what is gone."""

    def forget(db: Db) -> list[PermissionRow]:
        rows = holder.rules(db, operator.id)
        return permissions.forget(db, rows, user_id=operator.id, rule_id=rule_id)

    return _shown(await store.awrite(forget))


def _shown(rows: list[PermissionRow]) -> PermissionsShown:
    return {"items": [permissions.view(row) for row in rows], "next_cursor": None}


async def _own(store: OpenStore, operator: Operator, approval_id: str) -> Approval:
    return await store.aread(lambda db: approvals.get(db, operator.id, approval_id))


async def _stage_words(store: OpenStore, body: Decision) -> str | None:
    """Keep note and pattern where the worker finds them: a blob that is swept within a day."""
    words = body.model_dump(include={"note", "pattern"}, exclude_none=True)
    if not words:
        return None
    return (await asyncio.to_thread(store.blobs.put_json, words)).id
