"""Imports our own export: the same ids, events that verify, heads and blobs."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError
from sqlalchemy import select
from sqlalchemy.exc import IntegrityError

from holdfast.domain.canonical import canonical, sha256
from holdfast.domain.clock import now_ms
from holdfast.domain.errors import BadRequest, Conflict, ValidationFailed
from holdfast.domain.lifecycle import State
from holdfast.domain.project_file import ProjectFile
from holdfast.domain.trust import compare
from holdfast.folders import kernel_places
from holdfast.folders.hidden import is_hidden
from holdfast.storage.database.blobs import BlobStore
from holdfast.storage.database.engine import Db
from holdfast.storage.database.opening import OpenStore
from holdfast.storage.database.rows import change, find_row, insert_once, table
from holdfast.storage.database.tables import Project, ProjectFileRow, SessionRow
from holdfast.storage.database.tables_history import Checkpoint
from holdfast.storage.database.tables_library import Issue
from holdfast.storage.log import events
from holdfast.storage.moves import heads
from holdfast.storage.projects import quotas
from holdfast.storage.projects.projects import keep_file, keep_in_force, trusted_file
from holdfast.storage.sessions import purged_workflows, sessions, titles
from holdfast.storage.sessions.lineage import LEVELS_MAX
from holdfast.storage.transfer import archive, blob_names, references
from holdfast.storage.transfer.export_document import FORMAT, HIDDEN, VERSION
from holdfast.storage.transfer.importers import bounded_json
from holdfast.storage.transfer.importers.importer import Imported, Source

_sessions, _projects = table(SessionRow), table(Project)
IMPORTED_PROJECT = "imported"
MADE_IN_HOME = ("chats", "imported")
LINES_MAX = 10_000
NEITHER = "the body is neither JSON nor lines of JSON"
BYTES_MAX = 64 * 1024 * 1024
_MARK = re.compile(rb'"format"\s*:\s*"' + re.escape(FORMAT).encode() + b'"')
_HASH = re.compile(r"[0-9a-f]{64}")
INTERRUPTED = {"code": "imported_while_running", "message": "The export was made during this run."}


def sniff(source: Source) -> bool:
    """Whether the source begins like an export of ours."""
    return _MARK.search(source.head()) is not None


def read(source: Source) -> Iterator[ExportedSession]:
    """The session of one document, or of each line; one of them is in memory at a time.

    All lines are checked before the first session is handed out: of a torn file nothing is stored.
    """
    count = 0
    for line in _lines(source):
        count += 1
        if count > LINES_MAX:
            raise ValidationFailed(f"at most {LINES_MAX} lines at once")
        parts = _parts(_parsed(line))
    if count == 1:
        yield ExportedSession(parts)
        return
    if count == 0:
        raise BadRequest(NEITHER)
    del parts
    for line in _lines(source):
        yield ExportedSession(_parts(_parsed(line)))


@dataclass(frozen=True)
class ExportedSession:
    """The archive of one session, as `export_document` wrote it."""

    parts: dict[str, Any]

    def write(self, store: OpenStore, operator_id: str) -> Imported:
        """One that is already here unchanged is left alone; one that differs is a Conflict."""
        try:
            _refuse_own_folders(store.home.resolve(), self.parts)
            return store.write(lambda db: _import(db, store.blobs, operator_id, self.parts))
        except IntegrityError as error:
            raise Conflict(
                "something of this export is already here under another session"
            ) from error
        except (ValidationError, TypeError, KeyError, AttributeError, OverflowError) as error:
            raise ValidationFailed(f"the export is damaged: {str(error)[:300]}") from error


def _refuse_own_folders(home: Path, parts: dict[str, Any]) -> None:
    """An export may not bring a session that works among Holdfast's own things."""
    named = (parts["session"].get("working_directory"), (parts.get("project") or {}).get("path"))
    for folder in (Path(os.path.realpath(str(one).replace("\0", ""))) for one in named if one):
        # Where chats and sessions of other programs have their folders.
        made = any(folder.is_relative_to(home / one) for one in MADE_IN_HOME)
        if is_hidden(folder, [home]) and not made:
            raise ValidationFailed("the session of the export works in Holdfast's own folders")
        if kernel_places.is_of_kernel(folder):
            raise ValidationFailed(f"{folder} in the export {kernel_places.WORDS}")


def _lines(source: Source) -> Iterator[bytes]:
    """The lines with something on them, or everything at once when the first is no whole value."""
    lines = (line for line in source.lines(bytes_max=BYTES_MAX) if line.strip())
    first = next(lines, None)
    if first is None:
        return
    try:
        bounded_json.parse(first)
    except bounded_json.NotJson:
        yield source.whole(bytes_max=BYTES_MAX)
        return
    yield first
    yield from lines


def _parsed(text: bytes) -> Any:
    try:
        return bounded_json.parse(text)
    except bounded_json.NotJson:
        raise BadRequest(NEITHER) from None


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
    quotas.require_room(db, operator_id, "sessions")
    row.project_id = _project(db, operator_id, parts, row)
    if row.title is not None and titles.holder(db, operator_id, row.title) is not None:
        row.title = titles.next_title(db, operator_id, row.title)
    _settle(row, parts)
    purged_workflows.drop(db, row.id)
    brought = _sifted(db, operator_id, row, parts)
    blob_count = archive.put_blobs(db, blobs, brought.blobs)
    for source, rows in brought.sources:
        insert_once(db, SessionRow, source.model_dump())
        archive.put_rows(db, rows)
    if known is None:
        insert_once(db, SessionRow, row.model_dump())
    else:
        # In place: a deleted row would take the name of their parent from its forks.
        change(db, SessionRow, row.id, **row.model_dump(exclude={"id"}))
    archive.put_rows(db, brought.own)
    broken = events.broken_link(db, row.id)
    if broken is not None:
        raise ValidationFailed(f"event {broken} of the export does not follow from those before")
    answer: Imported = {
        "session_id": row.id,
        "imported": True,
        "messages": len(brought.own["messages"]),
        "blobs": blob_count,
        "sources": [source.id for source, _ in reversed(brought.sources)],
    }
    return {**answer, "warnings": brought.warnings} if brought.warnings else answer


@dataclass(frozen=True)
class Brought:
    """What of a document is stored: only what it carries, naming only what is the operator's."""

    own: references.Rows
    # The farthest source first, since each names the one it was forked from.
    sources: list[tuple[SessionRow, references.Rows]]
    blobs: dict[str, str]
    warnings: list[str]


def _sifted(db: Db, operator_id: str, row: SessionRow, parts: dict[str, Any]) -> Brought:
    given: dict[str, str] = parts.get("blobs") or {}
    sieve = references.Sieve(db, operator_id, frozenset(given))
    own = _own_rows(parts, row.id)
    sources = _new_sources(db, operator_id, parts, row)
    for session, rows in [(row, own), *sources]:
        sieve.carry(session.id, rows)
    sieve.session(row)
    own = sieve.rows(own)
    kept = []
    for source, rows in sources:
        sieve.session(source)
        kept.append((source, sieve.rows(rows)))
    _drop_foreign_issue(db, row)
    named = blob_names.in_prompts(row.prompts)
    for rows in (own, *(rows for _, rows in kept)):
        named |= blob_names.in_rows(rows)
        for head in rows["heads"]:
            data = archive.decoded(given, head["state_ref"])
            sieve.root(head, data)
            named |= blob_names.in_root(data)
    stored = {blob_id: given[blob_id] for blob_id in sorted(named)}
    return Brought(own, kept, stored, sieve.warnings())


def _new_sources(
    db: Db, operator_id: str, parts: dict[str, Any], row: SessionRow
) -> list[tuple[SessionRow, references.Rows]]:
    """What the fork reads, unless the source itself is here; another operator's is a Conflict."""
    given = parts.get("sources") or []
    if len(given) > LEVELS_MAX:
        raise ValidationFailed(f"an export has at most {LEVELS_MAX} sources")
    found = []
    for source in reversed(given):
        # Exports of older versions hold the whole row.
        hidden = _session_row({**source["session"], **HIDDEN}, operator_id)
        hidden.purged, hidden.project_id, hidden.bound_issue = True, row.project_id, None
        hidden.dsl_hash = row.dsl_hash
        known = sessions.find(db, hidden.id)
        if known is None:
            found.append((hidden, _own_rows(source, hidden.id)))
        elif known.created_by != operator_id:
            raise Conflict("a session with this id is already here", {"session_id": hidden.id})
    return found


def _session_row(given: dict[str, Any], operator_id: str) -> SessionRow:
    if not set(given) <= set(SessionRow.model_fields):
        raise ValidationFailed("the export has an unknown field in its session")
    row = SessionRow.model_validate(given)
    row.created_by = operator_id
    row.purged = False
    row.host_id = None  # hosts are of the store that it comes from
    row.file_hash = row.withheld = None
    row.waiting = 0
    row.attention = row.attention_kind = row.failed_run_id = row.trouble = None
    if row.state not in {state.value for state in State}:
        raise ValidationFailed("the export has a session in no known state")
    row.cache_id = row.cache_id or row.id  # exports of older versions have none
    return row


def _drop_foreign_issue(db: Db, row: SessionRow) -> None:
    """An issue of the store that made the export may not be in this project."""
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
    """Fill what exports of older versions do not have, and end what cannot go on here."""
    points = {row["id"]: row for row in rows["checkpoints"]}
    for head in rows["heads"]:
        head.setdefault("cache_id", head["session_id"])
        point = points.get(head["checkpoint_id"])
        if point is not None and "snapshot_ref" not in head:
            head["snapshot_ref"] = heads.snapshot_ref(Checkpoint.model_validate(point))


def _settle(row: SessionRow, parts: dict[str, Any]) -> None:
    """What was going on when the export was made does not go on here."""
    for pty in parts.get("ptys") or []:
        if pty["state"] != "closed":
            pty.update(state="closed", close_reason="lost", closed_at=now_ms())
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
    elif not _knows_project_file(db, operator_id, row.dsl_hash):
        raise ValidationFailed("the export names a project file that it does not carry")
    _hold_to_what_is_trusted(db, row, None if found is None else db.get(Project, str(found)))
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
    quotas.require_room(db, operator_id, "projects")
    insert_once(db, Project, project.model_dump())
    return project.id


def _knows_project_file(db: Db, operator_id: str, dsl_hash: str) -> bool:
    """Whether a file of that hash is the operator's already; what is no hash names none."""
    if _HASH.fullmatch(dsl_hash) is None:
        return True
    for place in (_sessions, _projects):
        mine = select(place.c.id).where(
            place.c.created_by == operator_id, place.c.dsl_hash == dsl_hash
        )
        if db.connection().execute(mine.limit(1)).first() is not None:
            return True
    return False


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


def _hold_to_what_is_trusted(db: Db, row: SessionRow, project: Project | None) -> None:
    """Reopened, an imported session is held to what this operator trusts."""
    kept = db.get(ProjectFileRow, row.dsl_hash)
    if kept is None:
        return
    file = ProjectFile.model_validate(kept.content)
    found = compare(file, None if project is None else trusted_file(db, project))
    row.file_hash = keep_in_force(db, found.in_force)
    row.withheld = found.areas or None
