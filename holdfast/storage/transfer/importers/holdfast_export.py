"""Imports our own export: the same ids, events that verify, heads and blobs."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError
from sqlalchemy import insert, select
from sqlalchemy.exc import IntegrityError

from holdfast.domain.canonical import canonical, sha256
from holdfast.domain.clock import now_ms
from holdfast.domain.errors import BadRequest, Conflict, ValidationFailed
from holdfast.domain.lifecycle import State
from holdfast.storage.database.blobs import BlobStore
from holdfast.storage.database.engine import Db
from holdfast.storage.database.opening import OpenStore
from holdfast.storage.database.rows import change, find_row, insert_once, table
from holdfast.storage.database.tables import Project, ProjectFileRow, SessionRow
from holdfast.storage.database.tables_history import Checkpoint
from holdfast.storage.database.tables_library import Issue
from holdfast.storage.log import events
from holdfast.storage.moves import heads
from holdfast.storage.projects.projects import keep_file
from holdfast.storage.sessions import purged_workflows, sessions, titles
from holdfast.storage.transfer import archive
from holdfast.storage.transfer.export_document import FORMAT, HIDDEN, VERSION
from holdfast.storage.transfer.importers.importer import Imported, Source

_sessions, _projects = table(SessionRow), table(Project)
IMPORTED_PROJECT = "imported"
LINES_MAX = 10_000
BYTES_MAX = 64 * 1024 * 1024
_MARK = re.compile(rb'"format"\s*:\s*"' + re.escape(FORMAT).encode() + b'"')
INTERRUPTED = {"code": "imported_while_running", "message": "The export was made during this run."}


def sniff(source: Source) -> bool:
    """Whether the source begins like an export of ours."""
    return _MARK.search(source.head()) is not None


def read(source: Source) -> Iterator[ExportedSession]:
    """The session of one document, or of each line.

    All lines are parsed before the first session is handed out: of a torn file nothing is stored.
    """
    for document in _documents(source.whole(bytes_max=BYTES_MAX)):
        yield ExportedSession(_parts(document))


@dataclass(frozen=True)
class ExportedSession:
    """The archive of one session, as `export_document` wrote it."""

    parts: dict[str, Any]

    def write(self, store: OpenStore, operator_id: str) -> Imported:
        """One that is already here unchanged is left alone; one that differs is a Conflict."""
        try:
            return store.write(lambda db: _import(db, store.blobs, operator_id, self.parts))
        except IntegrityError as error:
            raise Conflict(
                "something of this export is already here under another session"
            ) from error
        except (ValidationError, TypeError, KeyError) as error:
            raise ValidationFailed(f"the export is damaged: {str(error)[:300]}") from error


def _documents(body: bytes) -> list[Any]:
    try:
        text = body.decode()
        try:
            return [json.loads(text)]
        except ValueError:
            lines = [line for line in text.split("\n") if line.strip()]
            if len(lines) < 2:
                raise
            if len(lines) > LINES_MAX:
                raise ValidationFailed(f"at most {LINES_MAX} lines at once") from None
            return [json.loads(line) for line in lines]
    except (ValueError, RecursionError):
        raise BadRequest("the body is neither JSON nor lines of JSON") from None


def _parts(document: Any) -> dict[str, Any]:
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        raise BadRequest("this is not an export of Holdfast")
    if document.get("version") != VERSION:
        raise BadRequest(f"this export has version {document.get('version')}, not {VERSION}")
    parts = document.get("archive")
    if not isinstance(parts, dict) or not isinstance(parts.get("session"), dict):
        raise BadRequest("a redacted export is for reading only and cannot be imported")
    return parts


def _import(db: Db, blobs: BlobStore, operator_id: str, parts: dict[str, Any]) -> Imported:
    row = _session_row(parts["session"], operator_id)
    known = sessions.find(db, row.id)
    if known is not None and not (known.purged and known.created_by == operator_id):
        same = (
            known.created_by == operator_id and known.event_hash == parts["session"]["event_hash"]
        )
        if not same:
            raise Conflict("a session with this id is already here", {"session_id": row.id})
        return {"session_id": row.id, "imported": False, "messages": known.message_count}
    if known is not None:
        # Kept for a fork after a purge, or brought along by one: the whole takes its place.
        archive.delete_rows(db, row.id)
    row.project_id = _project(db, operator_id, parts, row)
    if row.title is not None and titles.holder(db, operator_id, row.title) is not None:
        row.title = titles.next_title(db, operator_id, row.title)
    blob_count = archive.put_blobs(db, blobs, parts.get("blobs") or {})
    _settle(row, parts)
    purged_workflows.drop(db, row.id)
    # The farthest source first, since each names the one it was forked from.
    given = reversed(parts.get("sources") or [])
    sources = [_import_source(db, operator_id, source, row.project_id) for source in given]
    _drop_missing(db, row)
    if known is None:
        insert_once(db, SessionRow, row.model_dump())
    else:
        # In place: a deleted row would take the name of their parent from its forks.
        change(db, SessionRow, row.id, **row.model_dump(exclude={"id"}))
    archive.put_rows(db, _own_rows(parts, row.id))
    broken = events.broken_link(db, row.id)
    if broken is not None:
        raise ValidationFailed(f"event {broken} of the export does not follow from those before")
    return {
        "session_id": row.id,
        "imported": True,
        "messages": len(parts.get("messages") or []),
        "blobs": blob_count,
        "sources": [source for source in reversed(sources) if source is not None],
    }


def _session_row(given: dict[str, Any], operator_id: str) -> SessionRow:
    if not set(given) <= set(SessionRow.model_fields):
        raise ValidationFailed("the export has an unknown field in its session")
    row = SessionRow.model_validate(given)
    row.created_by = operator_id
    row.purged = False
    row.cache_id = row.cache_id or row.id  # exports of older versions have none
    return row


def _drop_missing(db: Db, row: SessionRow) -> None:
    """A parent or an issue of the store that made the export may not be in this one."""
    if row.parent_session_id is not None and sessions.find(db, row.parent_session_id) is None:
        row.parent_session_id = None
    if row.bound_issue is not None:
        found = find_row(db, Issue, row.bound_issue)
        if found is None or found.project_id != row.project_id:
            row.bound_issue = None


def _own_rows(parts: dict[str, Any], session_id: str) -> dict[str, list[dict[str, Any]]]:
    """The collections; every row must belong to the session that the document is about."""
    rows: dict[str, list[dict[str, Any]]] = {}
    for name, (_, owner, _) in archive.COLLECTIONS.items():
        rows[name] = parts.get(name) or []
        if any(row[owner] != session_id for row in rows[name]):
            raise ValidationFailed(f"{name} of the export belong to another session")
    _complete(rows)
    return rows


def _complete(rows: dict[str, list[dict[str, Any]]]) -> None:
    """Fill what the heads in exports of older versions do not have."""
    points = {row["id"]: row for row in rows["checkpoints"]}
    for head in rows["heads"]:
        head.setdefault("cache_id", head["session_id"])
        point = points.get(head["checkpoint_id"])
        if point is not None and "snapshot_ref" not in head:
            head["snapshot_ref"] = heads.snapshot_ref(Checkpoint.model_validate(point))


def _settle(row: SessionRow, parts: dict[str, Any]) -> None:
    """What was going on when the export was made does not go on here."""
    if row.state not in (State.RUNNING.value, State.QUEUED.value, State.PAUSED.value):
        return
    row.state = State.IDLE.value
    row.active_run = row.current_checkpoint = None
    for run in parts.get("runs") or []:
        if run["state"] in ("pending", "running"):
            run.update(state="failed", error=INTERRUPTED, completed_at=now_ms())


def _project(db: Db, operator_id: str, parts: dict[str, Any], row: SessionRow) -> str:
    """The operator's project with that id or folder, or one made from what the export says."""
    given = parts.get("project") or {}
    path = str(given.get("path") or row.working_directory)
    mine = _projects.c.created_by == operator_id
    for condition in (_projects.c.id == row.project_id, _projects.c.path == path):
        found = db.connection().execute(select(_projects.c.id).where(mine, condition)).scalar()
        if found is not None:
            break
    if parts.get("project_file") is not None:
        row.dsl_hash = _keep_project_file(db, parts, row.dsl_hash)
    if found is not None:
        return str(found)
    taken = db.connection().execute(select(_projects.c.id).where(_projects.c.id == row.project_id))
    project = Project(
        id=row.project_id if taken.first() is None else f"{row.project_id}-{operator_id}",
        created_by=operator_id,
        name=str(given.get("name") or IMPORTED_PROJECT),
        path=path,
        dsl_hash=row.dsl_hash,
        created_at=now_ms(),
        updated_at=now_ms(),
    )
    insert_once(db, Project, project.model_dump())
    return project.id


def _keep_project_file(db: Db, parts: dict[str, Any], dsl_hash: str) -> str:
    """The hash to find it by: the session's where that file is known here, else its meaning's.

    The file's bytes are not in the export, so a hash of them cannot be checked.
    """
    file = parts["project_file"]
    meaning = sha256(canonical(file))
    if meaning != (parts.get("project_file_hash") or dsl_hash):
        raise ValidationFailed("the project file of the export does not match its hash")
    kept = db.get(ProjectFileRow, dsl_hash)
    if kept is not None and sha256(canonical(kept.content)) == meaning:
        return dsl_hash
    keep_file(db, meaning, file)
    return meaning


def _import_source(db: Db, operator_id: str, source: dict[str, Any], project_id: str) -> str | None:
    """Bring along what the fork reads, unless the source itself is here."""
    # Exports of older versions hold the whole row.
    row = _session_row({**source["session"], **HIDDEN}, operator_id)
    row.purged, row.project_id = True, project_id
    _drop_missing(db, row)
    if sessions.find(db, row.id) is not None:
        return None
    db.connection().execute(insert(_sessions).values(**row.model_dump()))
    archive.put_rows(db, _own_rows(source, row.id))
    return row.id
