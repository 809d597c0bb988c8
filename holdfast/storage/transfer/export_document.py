"""A session as one JSON document: readable at the top, and whole enough to be imported again."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from sqlalchemy import select

from holdfast.domain.canonical import canonical, sha256
from holdfast.domain.clock import now_ms
from holdfast.domain.lifecycle import State
from holdfast.storage.database.blobs import BlobStore
from holdfast.storage.database.engine import Db
from holdfast.storage.database.opening import OpenStore
from holdfast.storage.database.rows import table
from holdfast.storage.database.tables import Project, ProjectFileRow, SessionRow
from holdfast.storage.sessions import messages, session_views, sessions
from holdfast.storage.sessions.lineage import LEVELS_MAX
from holdfast.storage.sessions.message_views import MessageShown, message_json
from holdfast.storage.transfer import archive
from holdfast.storage.transfer.redaction import redact_all

FORMAT = "holdfast.session"
VERSION = 1
# Sessions longer than this are exported up to here, and the document says so.
MESSAGES_MAX = 200_000
# A source comes along for what its fork reads; everything else of its row is blank.
HIDDEN = {
    "purged": True,
    "archived": True,
    "state": State.ENDED.value,
    "title": None,
    "title_source": None,
    "preview": "",
    "failure": None,
    "current_head": None,
    "active_run": None,
    "current_checkpoint": None,
    "waiting": 0,
    "attention": None,
    "attention_kind": None,
    "failed_run_id": None,
    "last_run_id": None,
    "trouble": None,
    "event_seq": 0,
    "event_hash": "",
    "prompts": {},
}
_sessions, _projects, _files = table(SessionRow), table(Project), table(ProjectFileRow)


def document(
    db: Db,
    blobs: BlobStore,
    session: SessionRow,
    *,
    redacted: bool = False,
    archived: bool = True,
) -> dict[str, Any]:
    """The export of one session (H-039). A redacted one is for reading: its hashes would lie."""
    shown: dict[str, Any] = {
        "format": FORMAT,
        "version": VERSION,
        "exported_at": now_ms(),
        "redacted": redacted,
        "session": session_views.view(db, session),
        "messages": conversation(db, session.id),
    }
    if redacted:
        return {**shown, **redact_all({key: shown[key] for key in ("session", "messages")})}
    return {**shown, "archive": _archive(db, blobs, session)} if archived else shown


def conversation(db: Db, session_id: str) -> list[MessageShown]:
    """Every message that the session sees, superseded ones too, as the wire shows them."""
    page = messages.page(db, session_id, limit=MESSAGES_MAX, include_superseded=True)
    return [message_json(message, causes) for message, causes in page]


def documents(
    store: OpenStore, operator_id: str, *, source: str | None = None, redacted: bool = False
) -> Iterator[dict[str, Any]]:
    """Every session of the operator, oldest first, each document with how far the export is."""
    ids = store.read(lambda db: _ids(db, operator_id, source))
    for done, session_id in enumerate(ids, start=1):
        exported = store.read(
            lambda db, wanted=session_id: _document(db, store.blobs, wanted, redacted)  # type: ignore[misc]
        )
        if exported is not None:
            yield {**exported, "progress": {"done": done, "total": len(ids)}}


def _document(db: Db, blobs: BlobStore, session_id: str, redacted: bool) -> dict[str, Any] | None:
    session = sessions.find(db, session_id)
    if session is None or session.purged:
        return None
    return document(db, blobs, session, redacted=redacted)


def _archive(db: Db, blobs: BlobStore, session: SessionRow) -> dict[str, Any]:
    rows = archive.rows_of(db, session.id)
    project = db.connection().execute(
        select(_projects.c.id, _projects.c.name, _projects.c.path).where(
            _projects.c.id == session.project_id
        )
    )
    kept = select(_files.c.content).where(_files.c.hash == (session.file_hash or session.dsl_hash))
    file = db.connection().execute(kept).scalar()
    found = project.first()
    sources = _sources(db, rows)
    return {
        "session": session.model_dump(),
        "project": None if found is None else dict(found._mapping),
        "project_file": file,
        "project_file_hash": None if file is None else sha256(canonical(file)),
        **rows,
        "sources": sources,
        # Prompts are named by the session's own row, edited ones perhaps by nothing else.
        "blobs": archive.blobs_of(blobs, [rows, *sources], [session.prompts]),
    }


def _sources(db: Db, own: dict[str, list[dict[str, Any]]]) -> list[dict[str, Any]]:
    """What the session reads of the sessions it was forked from, the nearest first."""
    sources: list[dict[str, Any]] = []
    edges = own["derivations"]
    cutoff_seq = int(edges[0]["cutoff_seq"]) if edges else 0
    while edges and len(sources) < LEVELS_MAX:
        edge = edges[0]
        source = sessions.find(db, edge["source_session"])
        if source is None:
            break
        rows = archive.rows_of(db, source.id)
        cutoff_seq = min(cutoff_seq, edge["cutoff_seq"])
        hidden = {**source.model_dump(), **HIDDEN}
        sources.append({"session": hidden, **_read_by(edge, rows, cutoff_seq)})
        edges = rows["derivations"]
    return sources


def _read_by(
    edge: dict[str, Any], rows: dict[str, list[dict[str, Any]]], cutoff_seq: int
) -> dict[str, Any]:
    """The rows of a source that a fork reads over this edge; of a cleared fork there are none."""
    named = (row["number"] for row in rows["heads"] if row["id"] == edge["source_head"])
    last = max(named, default=0)
    # A fork that reads no message reads no supersession either.
    change = edge["cutoff_change"] if cutoff_seq else 0
    return {
        "messages": [row for row in rows["messages"] if row["seq"] <= cutoff_seq],
        "supersessions": [row for row in rows["supersessions"] if row["change"] <= change],
        "heads": [row for row in rows["heads"] if row["number"] <= last],
        "derivations": rows["derivations"],
    }


def _ids(db: Db, operator_id: str, source: str | None) -> list[str]:
    mine = select(_sessions.c.id).where(
        _sessions.c.created_by == operator_id, _sessions.c.purged.is_(False)
    )
    if source is not None:
        mine = mine.where(_sessions.c.source == source)
    return [str(row[0]) for row in db.connection().execute(mine.order_by(_sessions.c.created_at))]
