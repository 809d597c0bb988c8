"""Projects: folders with a project file, each as one operator loaded it."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from sqlalchemy import func
from sqlmodel import col, select

from holdfast.domain.canonical import canonical, sha256
from holdfast.domain.clock import now_ms
from holdfast.domain.errors import Conflict, DslInvalid, NotFound
from holdfast.domain.events import DslChanged
from holdfast.domain.ids import new_id
from holdfast.domain.lifecycle import OVER, State
from holdfast.domain.project_file import Limits, ProjectFile
from holdfast.domain.trust import DEFAULTS, Comparison, ProjectDefaults, compare
from holdfast.storage.database.engine import Db
from holdfast.storage.database.tables import Project, ProjectFileRow, SessionRow
from holdfast.storage.log import events
from holdfast.storage.projects import project_file, quotas
from holdfast.storage.projects.project_file import LoadedFile

PROJECTS_PER_PAGE_MAX = 500
FILES_KEPT_MAX = 256
_FILES: dict[str, ProjectFile] = {}
WATCHED_MAX = 10_000
NAMESAKES_MAX = 10
SESSIONS_TOLD_MAX = 500


def load(
    db: Db,
    operator_id: str,
    loaded: LoadedFile,
    *,
    defaults: ProjectDefaults = DEFAULTS,
    trust: bool = False,
) -> tuple[Project, bool]:
    """The project of this folder and whether it is new; an old one takes the file as it is now.

    With `trust` all of the file is in force from now on; without, only what loosens nothing.
    """
    found = by_path(db, operator_id, str(loaded.path))
    if found is not None:
        before = (found.dsl_hash, found.file_hash)
        _apply(db, found, loaded, defaults, trust=trust)
        if before[0] not in (loaded.hash, loaded.meaning) or before[1] not in (
            None,
            found.file_hash,
        ):
            _tell_sessions(db, found, before[0])
        return found, False
    quotas.require_room(db, operator_id, "projects")
    now = now_ms()
    project = Project(
        id=new_id(),
        created_by=operator_id,
        name=loaded.file.project,
        path=str(loaded.path),
        created_at=now,
        updated_at=now,
    )
    _apply(db, project, loaded, defaults, trust=trust)
    return project, True


def load_in_home(db: Db, home: Path, operator_id: str, *names: str) -> Project:
    """The operator's project in that folder of the home; both are made when missing."""
    folder = home.joinpath(*names)
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    return load(db, operator_id, project_file.load(folder.resolve()))[0]


def mark_invalid(db: Db, operator_id: str, project_id: str, error: DslInvalid) -> Project:
    """The file is broken: no new session until it is mended. The last good hash stays."""
    project = get(db, operator_id, project_id)
    project.state = "invalid"
    project.error = {"code": error.code, "message": error.message, "details": error.details}
    project.updated_at = now_ms()
    db.add(project)
    db.flush()
    return project


def _apply(
    db: Db, project: Project, loaded: LoadedFile, defaults: ProjectDefaults, *, trust: bool
) -> None:
    """Take over a file that is valid; sessions that exist keep theirs (K-126)."""
    in_force = _put_in_force(db, project, loaded, defaults, trust=trust)
    project.name = loaded.file.project
    project.dsl_hash, project.dsl_meaning = loaded.hash, loaded.meaning
    said = loaded.running_sessions is not None
    project.running_limit = in_force.limits.running_sessions if said else defaults.running_sessions
    project.state = "ready"
    project.error = None
    project.updated_at = now_ms()
    db.add(project)
    db.flush()


def _put_in_force(
    db: Db, project: Project, loaded: LoadedFile, defaults: ProjectDefaults, *, trust: bool
) -> ProjectFile:
    """What of the file is in force, kept for new sessions; what loosens waits for the operator."""
    if loaded.hash == project.trusted_hash == project.file_hash:
        return file_by_hash(db, loaded.hash)  # loaded before 0008, and not written since
    limits = Limits(running_sessions=defaults.running_sessions)
    bare = ProjectFile(project=loaded.file.project, limits=limits)
    trusted = trusted_file(db, project) or bare
    found = Comparison(loaded.file) if trust else compare(loaded.file, trusted, defaults)
    project.file_hash = keep_in_force(db, found.in_force)
    project.loosens = [one.as_json() for one in found.loosenings] or None
    if project.loosens is None:
        project.trusted_hash = project.file_hash
        keep_file(db, loaded.hash, loaded.content)
    return found.in_force


def session_columns(project: Project) -> dict[str, Any]:
    """The columns of a new session that say which project file it runs with."""
    return {
        "project_id": project.id,
        "dsl_hash": project.dsl_hash,
        "file_hash": project.file_hash,
        "withheld": areas(project) or None,
    }


def areas(project: Project) -> list[str]:
    """What the project's file loosens and nobody has trusted, each area once."""
    return list(dict.fromkeys(one["area"] for one in project.loosens or ()))


def _tell_sessions(db: Db, project: Project, old_hash: str) -> None:
    """Sessions that go on with the old file say so on their events channel."""
    open_states = [state.value for state in State if state not in OVER]
    rows = db.exec(
        select(SessionRow.id)
        .where(
            SessionRow.project_id == project.id,
            col(SessionRow.state).in_(open_states),
            col(SessionRow.archived).is_(False),
        )
        .order_by(col(SessionRow.last_active).desc())
        .limit(SESSIONS_TOLD_MAX)
    )
    changed = DslChanged(project_id=project.id, old_hash=old_hash, new_hash=project.dsl_hash)
    for session_id in rows.all():
        events.append(db, session_id, changed)


def keep_file(db: Db, file_hash: str, content: dict[str, Any]) -> None:
    """Store a project file by its hash, once."""
    if db.get(ProjectFileRow, file_hash) is None:
        db.add(ProjectFileRow(hash=file_hash, content=content, created_at=now_ms()))
        db.flush()


def keep_in_force(db: Db, file: ProjectFile) -> str:
    """Store a file under the hash of what it says; what its bytes mean differs by version."""
    content = file.model_dump(mode="json")
    found = sha256(canonical(content))
    keep_file(db, found, content)
    return found


def trusted_file(db: Db, project: Project) -> ProjectFile | None:
    """The file of the project that its operator trusted last."""
    return None if project.trusted_hash is None else file_by_hash(db, project.trusted_hash)


def file_by_hash(db: Db, file_hash: str) -> ProjectFile:
    """The project file that a session began with; a hash always names the same one."""
    known = _FILES.get(file_hash)
    if known is not None:
        return known
    row = db.get(ProjectFileRow, file_hash)
    if row is None:
        raise NotFound("no such project file")
    if len(_FILES) >= FILES_KEPT_MAX:
        _FILES.clear()
    return _FILES.setdefault(file_hash, ProjectFile.model_validate(row.content))


def file_of(db: Db, session: SessionRow) -> ProjectFile:
    """The project file in force for a session; sessions of before 0008 name it by its bytes."""
    return file_by_hash(db, session.file_hash or session.dsl_hash)


def file_in_force(db: Db, project: Project) -> ProjectFile:
    """The project file that a new session would run with."""
    return file_by_hash(db, project.file_hash or project.dsl_hash)


def by_path(db: Db, operator_id: str, path: str) -> Project | None:
    """The operator's project in this folder."""
    return db.exec(
        select(Project).where(Project.created_by == operator_id, Project.path == path)
    ).first()


def get(db: Db, operator_id: str, project_id: str) -> Project:
    """The operator's own project, or NotFound."""
    found = db.get(Project, project_id)
    if found is None or found.created_by != operator_id:
        raise NotFound("no such project")
    return found


def by_id(db: Db, project_id: str) -> Project:
    """Anybody's project, for the worker's own steps."""
    found = db.get(Project, project_id)
    if found is None:
        raise NotFound("no such project")
    return found


def named(db: Db, operator_id: str, name: str) -> Project:
    """The operator's own project by its id or its name; a name that several have is refused."""
    found = db.get(Project, name)
    if found is not None and found.created_by == operator_id:
        return found
    mine = select(Project).where(Project.created_by == operator_id, Project.name == name)
    rows = db.exec(mine.order_by(col(Project.id)).limit(NAMESAKES_MAX)).all()
    if not rows:
        raise NotFound("no such project")
    if len(rows) > 1:
        ids = [row.id for row in rows]
        raise Conflict(f"several of your projects are named {name[:80]!r}: use an id", {"ids": ids})
    return rows[0]


def page(db: Db, operator_id: str, *, limit: int, after: str | None = None) -> list[Project]:
    """The operator's projects, oldest first."""
    wanted = select(Project).where(Project.created_by == operator_id)
    if after is not None:
        wanted = wanted.where(col(Project.id) > after)
    return list(db.exec(wanted.order_by(col(Project.id)).limit(min(limit, PROJECTS_PER_PAGE_MAX))))


def everywhere(db: Db) -> list[Project]:
    """The projects of all operators, for those who watch their files."""
    return list(db.exec(select(Project).order_by(col(Project.id)).limit(WATCHED_MAX)))


def running_counts(db: Db, project_ids: Iterable[str]) -> dict[str, int]:
    """How many sessions run in each project; a project where none does is left out."""
    counted = db.exec(
        select(SessionRow.project_id, func.count())
        .where(
            SessionRow.state == State.RUNNING,
            col(SessionRow.without_slot).is_(False),
            col(SessionRow.project_id).in_(list(project_ids)),
        )
        .group_by(SessionRow.project_id)
    )
    return {project_id: int(count) for project_id, count in counted}


def view(project: Project, running: int) -> dict[str, Any]:
    """The project as it is sent."""
    return {
        "id": project.id,
        "name": project.name,
        "path": project.path,
        "state": project.state,
        "dsl_hash": project.dsl_hash,
        "running": running,
        "limit": project.running_limit,
        "error": project.error,
        "trust": {
            "state": "pending" if project.loosens else "trusted",
            "dsl_hash": project.dsl_hash,
            "loosens": areas(project),
            "details": project.loosens or [],
        },
        "created_at": project.created_at,
        "updated_at": project.updated_at,
    }


def views(db: Db, projects: list[Project]) -> list[dict[str, Any]]:
    """Several projects as they are sent, counted in one query."""
    counts = running_counts(db, [project.id for project in projects])
    return [view(project, counts.get(project.id, 0)) for project in projects]
