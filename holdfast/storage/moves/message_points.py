"""Checkpoints made afterwards, right before a message of the operator: what a rollback goes to.

They hold what a pause there would have held, but for what was going on: nothing was. They do not
count among the pauses of a session.
"""

from __future__ import annotations

from itertools import chain

from sqlalchemy import or_, select

from holdfast.domain.errors import Conflict, ValidationFailed
from holdfast.domain.events import CheckpointCreated
from holdfast.storage.database.blobs import BlobStore
from holdfast.storage.database.engine import Db
from holdfast.storage.database.rows import insert_once, table
from holdfast.storage.database.tables import Message, Run
from holdfast.storage.database.tables_history import Checkpoint, Compaction
from holdfast.storage.log import events
from holdfast.storage.moves import checkpoints, points
from holdfast.storage.sessions import messages, runs, sessions
from holdfast.storage.sessions.lineage import CauseShown, levels, superseded

UNCHANGED = "no run has used a tool that changes files since"
NOT_SAVED = "the files before the next run that used tools could not be saved"
OPERATOR_ONLY = "a rollback goes back to a message of the operator"
COMPACTED_SINCE = (
    "the session that this one was forked from was compacted after this message:"
    " fork that session at the message instead"
)
_runs, _compactions, _messages = table(Run), table(Compaction), table(Message)


def wanted(db: Db, session_id: str, message_id: str) -> Message:
    """The operator's message to go back to; refused when it was taken back already."""
    message = points.seen_message(db, session_id, message_id)
    if message.role != "operator":
        raise ValidationFailed(OPERATOR_ONLY)
    gone = superseded(db, levels(db, session_id))
    causes = gone.get(message_id, [])
    if any(cause["cause"] != "compaction" for cause in causes):
        raise Conflict("the message is no part of the conversation any more", {"causes": causes})
    if message.session_id != session_id and _compacted_since(db, session_id, gone, message):
        raise Conflict(COMPACTED_SINCE, {"source_session": message.session_id})
    return message


def make(
    db: Db, blobs: BlobStore, session_id: str, message_id: str, *, checkpoint_id: str
) -> Checkpoint:
    """The checkpoint right before the message; the same id twice is one checkpoint."""
    known = checkpoints.find(db, checkpoint_id)
    if known is not None:
        return known
    session = sessions.lock(db, session_id)
    message = wanted(db, session_id, message_id)
    point = points.at_message(db, blobs, session, message, "before")
    tree, note = _files_before(db, session_id, message)
    row = Checkpoint(
        id=checkpoint_id,
        session_id=session_id,
        created_at=message.created_at,
        created_by=checkpoints.AT_MESSAGE,
        message_seq=point.message_seq,
        change=point.change,
        message_count=point.message_count,
        message_history_cursor=messages.newest_id(db, session_id, up_to=point.message_seq),
        snapshot={"message_id": message_id},
        prompts=point.prompts,
        head_id=point.head_id,
        tree=tree,
        tree_note=note,
    )
    insert_once(db, Checkpoint, row.model_dump())
    created = CheckpointCreated(
        checkpoint_id=checkpoint_id,
        session_id=session_id,
        created_by=checkpoints.AT_MESSAGE,
        reason="",
    )
    events.append(db, session_id, created, row=("checkpoint", checkpoint_id))
    return checkpoints.get(db, session_id, checkpoint_id)


def _compacted_since(
    db: Db, session_id: str, gone: dict[str, list[CauseShown]], message: Message
) -> bool:
    """Whether an inherited compaction would have to be undone, which only its session can do."""
    causes = chain.from_iterable(gone.values())
    ids = {cause["cause_id"] for cause in causes if cause["cause"] == "compaction"}
    later = (
        select(_compactions.c.id)
        .outerjoin(_messages, _messages.c.id == _compactions.c.summary_message_id)
        .where(
            _compactions.c.id.in_(ids),
            _compactions.c.session_id != session_id,
            or_(
                _messages.c.seq > message.seq,
                _messages.c.seq.is_(None) & (_compactions.c.created_at > message.created_at),
            ),
        )
    )
    return db.connection().execute(later.limit(1)).first() is not None


def _files_before(db: Db, session_id: str, message: Message) -> tuple[str | None, str]:
    """The first snapshot that a run has made from the message on, or why there is none."""
    begun = runs.of_message(db, message.id)
    since = message.created_at if begun is None else min(message.created_at, begun.created_at)
    first = (
        select(_runs.c.tree_before)
        .where(
            _runs.c.session_id == session_id,
            _runs.c.created_at >= since,
            _runs.c.tree_before.is_not(None),
        )
        .order_by(_runs.c.created_at, _runs.c.id)
        .limit(1)
    )
    tree = db.connection().execute(first).scalar()
    if tree is None:
        return None, UNCHANGED
    return (tree, "") if tree else (None, NOT_SAVED)
