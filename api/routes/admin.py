"""Looking after the store: whether it agrees with itself."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query

from api.dependencies import CurrentOperator, StoreDep
from api.models import Shown, shows
from storage import consistency, operators, sessions
from storage.engine import Db

router = APIRouter(tags=["admin"])


class ReportShown(Shown):
    """The answer of F-037."""

    kind: str
    mode: str
    status: str
    counts: dict[str, int]
    issue_count: int
    issues: list[dict[str, Any]]
    warnings: list[str]


@router.post("/admin/consistency", responses=shows(200, ReportShown))
async def check_consistency(
    operator: CurrentOperator,
    store: StoreDep,
    mode: Annotated[Literal["quick", "deep"], Query()] = "deep",
) -> dict[str, Any]:
    """Check the store; only reads. Others than the default operator see whose rows only if own."""
    report = await asyncio.to_thread(consistency.check, store, mode)
    answer = report.view()
    if operator.name != operators.DEFAULT_OPERATOR:
        owned = await store.aread(lambda db: _owned(db, operator.id, report))
        answer["issues"] = [
            issue
            if issue["session_id"] in owned
            else {"type": issue["type"], "id": None, "session_id": None}
            for issue in answer["issues"]
        ]
    return answer


def _owned(db: Db, operator_id: str, report: consistency.Report) -> set[str]:
    named = {issue.session_id for issue in report.issues if issue.session_id is not None}
    found = (sessions.find(db, session_id) for session_id in named)
    return {row.id for row in found if row is not None and row.created_by == operator_id}
