"""Processes that nobody waits for any more: their call is lost, their run cancelled, or all over.

They were to be killed at that time. A host that was away then learns of it when it is back.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from sqlalchemy import select

from holdfast.domain.lifecycle import OVER
from holdfast.storage.database.engine import Db
from holdfast.storage.database.rows import table
from holdfast.storage.database.tables import Run, SessionRow
from holdfast.storage.database.tables_hosts import Execution

_executions, _runs, _sessions = table(Execution), table(Run), table(SessionRow)
_OVER = tuple(state.value for state in OVER)


@dataclass(frozen=True)
class Alive:
    """A process that a host still has."""

    key: str
    session_id: str
    run_id: str | None


def among(db: Db, alive: Collection[Alive]) -> list[str]:
    """The keys of those that must end; what another store knows is left alone."""
    calls, runs = {one.key for one in alive}, {one.run_id for one in alive if one.run_id}
    sessions = {one.session_id for one in alive}
    lost = select(_executions.c.call_id).where(
        _executions.c.call_id.in_(calls), _executions.c.state == "lost"
    )
    cancelled = select(_runs.c.id).where(_runs.c.id.in_(runs), _runs.c.state == "cancelled")
    over = select(_sessions.c.id).where(_sessions.c.id.in_(sessions), _sessions.c.state.in_(_OVER))
    connection = db.connection()
    gone = {str(one) for rows in (lost, cancelled, over) for one in connection.scalars(rows)}
    return [one.key for one in alive if gone & {one.key, one.session_id, one.run_id}]
