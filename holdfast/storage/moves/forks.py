"""Forks by reference: a new session that sees its source as it was, at the cost of a few rows."""

from __future__ import annotations

from typing import Any, Literal

from sqlalchemy import func, select, update

from holdfast.domain.clock import now_ms
from holdfast.domain.errors import BadRequest, NotFound
from holdfast.domain.events import SessionForked
from holdfast.domain.ids import new_id
from holdfast.storage.database.blobs import BlobStore
from holdfast.storage.database.engine import Db
from holdfast.storage.database.rows import insert_once, table
from holdfast.storage.database.tables import SessionRow
from holdfast.storage.database.tables_history import Derivation
from holdfast.storage.log import events
from holdfast.storage.moves import points
from holdfast.storage.moves.points import Point
from holdfast.storage.sessions import sessions

SOURCE_MISSING = "Source session not found."
_derivations = table(Derivation)


def fork(
    db: Db,
    blobs: BlobStore,
    *,
    source_session: str,
    operator: str,
    new_session_id: str,
    checkpoint_id: str | None = None,
    head_id: str | None = None,
    message_id: str | None = None,
    **columns: Any,
) -> SessionRow:
    """A new idle session that goes on from the source's current point, or from the one named.

    A message of the operator means right before it, so that it can be said otherwise; any other
    means right after it.

    `columns` are those of the new session; what they leave out is as in the source. The source is
    only read. The same id twice is one fork.
    """
    known = sessions.find(db, new_session_id)
    if known is not None:
        return known
    source = sessions.find(db, source_session)
    if source is None or source.created_by != operator or source.purged:
        raise NotFound(SOURCE_MISSING)
    point = _point(
        db,
        blobs,
        source,
        checkpoint_id=checkpoint_id,
        head_id=head_id,
        message_id=message_id,
    )
    row = _session(source, point, columns, id=new_session_id)
    _record(db, source.id, new_session_id, point)
    created = sessions.create(db, row)
    forked = SessionForked(
        session_id=new_session_id,
        source_session_id=source.id,
        source_head_id=point.head_id,
        checkpoint_id=checkpoint_id,
    )
    events.append(db, new_session_id, forked, row=("session", new_session_id))
    return sessions.get(db, created.id)


def _session(
    source: SessionRow,
    point: Point,
    columns: dict[str, Any],
    *,
    id: str,  # noqa: A002 - the column's name
) -> SessionRow:
    """The fork's row: what the columns leave out is as in the source."""
    inherited = {
        "project_id": source.project_id,
        "working_directory": source.working_directory,
        "dsl_hash": source.dsl_hash,
        "file_hash": source.file_hash,
        "withheld": source.withheld,
        "mode": source.mode,
        "model_override": source.model_override,
        "source": source.source,
        "cache_id": source.cache_id,
        "stuck_guard": source.stuck_guard,
    }
    given = {name: value for name, value in columns.items() if value is not None}
    if "dsl_hash" in given:
        inherited.update(file_hash=None, withheld=None)
    return SessionRow(
        **{**inherited, **given},
        id=id,
        created_by=source.created_by,
        forked_from=source.id,
        parent_session_id=source.id,
        prompts=point.prompts,
        preview=source.preview,
        message_seq=point.message_seq,
        message_count=point.message_count,
    )


def _record(db: Db, source_id: str, target_id: str, point: Point) -> None:
    """The edge from the source to the fork; the same fork twice is one edge."""
    insert_once(
        db,
        Derivation,
        {
            "id": new_id(),
            "type": "fork",
            "source_session": source_id,
            "source_head": point.head_id,
            "target_session": target_id,
            "cutoff_seq": point.message_seq,
            "cutoff_change": point.change,
            "created_at": now_ms(),
        },
    )


def kept_for_forks(db: Db, session_id: str) -> int | None:
    """Up to which seq forks read this session's messages; None when no fork does.

    A purge keeps these messages, the session's supersessions and the heads that derivations name.
    """
    deepest = select(func.max(_derivations.c.cutoff_seq)).where(
        _derivations.c.source_session == session_id
    )
    found = db.connection().execute(deepest).scalar()
    return None if found is None else int(found)


def read_nothing(db: Db, session_id: str) -> str | None:
    """Let the fork read nothing of its source any more; the source's id, or None without one.

    The edge stays: it says where the session comes from.
    """
    mine = _derivations.c.target_session == session_id
    cleared = update(_derivations).where(mine)
    db.connection().execute(cleared.values(source_head=None, cutoff_seq=0, cutoff_change=0))
    source = select(_derivations.c.source_session).where(mine)
    found: str | None = db.connection().execute(source).scalar()
    return found


def _point(
    db: Db,
    blobs: BlobStore,
    source: SessionRow,
    *,
    checkpoint_id: str | None,
    head_id: str | None,
    message_id: str | None,
) -> Point:
    if sum(name is not None for name in (checkpoint_id, head_id, message_id)) > 1:
        raise BadRequest("fork from a checkpoint, from a head or from a message, not from several")
    if checkpoint_id is not None:
        return points.at_checkpoint(db, source.id, checkpoint_id)
    if head_id is not None:
        return points.at_head(db, blobs, source.id, head_id)
    if message_id is not None:
        message = points.seen_message(db, source.id, message_id)
        side: Literal["before", "after"] = "before" if message.role == "operator" else "after"
        return points.at_message(db, blobs, source, message, side)
    return points.now(source)
