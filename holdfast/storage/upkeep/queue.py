"""Sessions that wait for a slot, and which of them may start by themselves (`auto_resume`)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from sqlalchemy import func, select

from holdfast.domain.lifecycle import State
from holdfast.storage.database.engine import Db
from holdfast.storage.database.rows import table
from holdfast.storage.database.tables import Run, SessionRow
from holdfast.storage.projects import projects
from holdfast.storage.sessions import sessions

FILES_MAX, WAITING_MAX = 500, 1000
_sessions, _runs = table(SessionRow), table(Run)
_FILE = func.coalesce(_sessions.c.file_hash, _sessions.c.dsl_hash)


@dataclass(frozen=True)
class Waiting:
    """A queued session and the run that waits in it."""

    session_id: str
    run_id: str
    project_id: str
    operator_id: str


def startable(db: Db) -> list[Waiting]:
    """Those whose project file lets them start by themselves and who have a slot, oldest first.

    What it reads is the database alone, so a restarted worker finds everybody who waits.
    """
    files = [file_hash for file_hash in _files(db) if _starts_itself(db, file_hash)]
    return list(_with_slots(db, _waiting(db, files))) if files else []


def _files(db: Db) -> list[str]:
    queued = _sessions.c.state == State.QUEUED.value
    rows = select(_FILE).where(queued).distinct().limit(FILES_MAX)
    return list(db.connection().execute(rows).scalars())


def _starts_itself(db: Db, file_hash: str) -> bool:
    return projects.file_by_hash(db, file_hash).auto_resume


def _waiting(db: Db, files: list[str]) -> list[Waiting]:
    rows = (
        select(_sessions.c.id, _runs.c.id, _sessions.c.project_id, _sessions.c.created_by)
        .join(_runs, _runs.c.id == _sessions.c.active_run)
        .where(_sessions.c.state == State.QUEUED.value, _FILE.in_(files))
        .order_by(_runs.c.created_at, _runs.c.id)
        .limit(WAITING_MAX)
    )
    return [Waiting(*row) for row in db.connection().execute(rows)]


def _with_slots(db: Db, waiting: list[Waiting]) -> Iterable[Waiting]:
    """Whoever is let through takes a slot from those behind; one who is not holds nobody up."""
    free: dict[str, int] = {}
    for one in waiting:
        for owner, slots in (
            (one.project_id, sessions.project_slots),
            (one.operator_id, sessions.operator_slots),
        ):
            if owner not in free:
                running, limit = slots(db, owner)
                free[owner] = limit - running
        if free[one.project_id] > 0 and free[one.operator_id] > 0:
            free[one.project_id] -= 1
            free[one.operator_id] -= 1
            yield one
