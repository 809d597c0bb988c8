"""Looking after the store: whether it agrees with itself."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query

from api.dependencies import CurrentOperator, ServicesDep
from api.models import Shown, shows
from holdfast.domain.cages.shown import CageShown, described
from holdfast.storage.projects import operators
from holdfast.storage.upkeep import consistency

router = APIRouter(tags=["admin"])


class ReportShown(Shown):
    """The answer of F-037."""

    kind: str
    mode: str
    status: str
    counts: dict[str, int]
    issue_count: int
    issues: list[dict[str, Any]]
    dangling: list[dict[str, Any]]
    warnings: list[str]
    cage: CageShown


@router.post("/admin/consistency", responses=shows(200, ReportShown))
async def check_consistency(
    operator: CurrentOperator,
    services: ServicesDep,
    mode: Annotated[Literal["quick", "deep"], Query()] = "deep",
) -> dict[str, Any]:
    """Check the store, and tell the machine's cage; only reads.

    Others than the default operator are told of their own rows.
    """
    everybodys = operator.name == operators.DEFAULT_OPERATOR
    owner = None if everybodys else operator.id
    check = consistency.check
    report = await asyncio.to_thread(check, services.store, mode, operator_id=owner)
    return {**report.view(), "cage": described({}, await services.terminals.cage())}
