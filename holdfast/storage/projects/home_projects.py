"""Projects of our own in the home: for chats without a folder, and for what was imported."""

from __future__ import annotations

from pathlib import Path

from holdfast.storage.database.engine import Db
from holdfast.storage.database.tables import Project
from holdfast.storage.projects import project_file, projects

CHATS = "chats"
IMPORTED = "imported"


def home_project(db: Db, home: Path, operator_id: str, *names: str) -> Project:
    """The operator's project in that folder of the home; both are made when missing."""
    folder = home.joinpath(*names)
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    return projects.load(db, operator_id, project_file.load(folder.resolve()))[0]
