"""Whose a session is, and the folder of its project: what its programs are started with."""

from __future__ import annotations

from dataclasses import dataclass

from sqlmodel import col, select

from holdfast.storage.database.engine import Db
from holdfast.storage.database.tables import Operator, Project, SessionRow


@dataclass(frozen=True, slots=True)
class Owner:
    """The name of an operator, and the folder of a project."""

    operator: str
    project_folder: str


def owner_of(db: Db, session: SessionRow) -> Owner:
    """The owner of a session; an empty word for what is gone."""
    name = db.exec(select(Operator.name).where(col(Operator.id) == session.created_by)).first()
    folder = db.exec(select(Project.path).where(col(Project.id) == session.project_id)).first()
    return Owner(name or "", folder or "")
