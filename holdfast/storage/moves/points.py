"""Points in a session's past, for forks and rollbacks: a checkpoint, a head, a message, or now."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from sqlalchemy import func, select

from holdfast.domain.errors import NotFound
from holdfast.storage.database.blobs import BlobStore
from holdfast.storage.database.engine import Db
from holdfast.storage.database.rows import table
from holdfast.storage.database.tables import Message, SessionRow, Supersession
from holdfast.storage.database.tables_history import Head, PromptEdit
from holdfast.storage.moves import checkpoints, heads, prompt_edits
from holdfast.storage.sessions import messages

MESSAGE_MISSING = "Message not found."
_heads, _edits, _supersessions = table(Head), table(PromptEdit), table(Supersession)


@dataclass(frozen=True)
class Point:
    """Where a session stood: a cutoff of its messages, of their changes, and its prompts."""

    head_id: str | None
    message_seq: int
    change: int
    message_count: int
    prompts: dict[str, str]


def now(session: SessionRow) -> Point:
    """Where the session stands."""
    return Point(
        session.current_head,
        session.message_seq,
        session.change_seq,
        session.message_count,
        session.prompts,
    )


def at_checkpoint(db: Db, session_id: str, checkpoint_id: str) -> Point:
    """Where it was paused."""
    at = checkpoints.get(db, session_id, checkpoint_id)
    return Point(at.head_id, at.message_seq, at.change, at.message_count, at.prompts)


def at_head(db: Db, blobs: BlobStore, session_id: str, head_id: str) -> Point:
    """What a head holds."""
    head = heads.get(db, session_id, head_id)
    prompts = heads.root(blobs, head.id)["prompts"]
    return Point(head.id, head.message_seq, head.change, head.message_count, prompts)


def at_message(
    db: Db,
    blobs: BlobStore,
    session: SessionRow,
    message: Message,
    side: Literal["before", "after"],
) -> Point:
    """Right before or right after a message that the session sees."""
    seq = message.seq - 1 if side == "before" else message.seq
    head = _head_at(db, session.current_head, seq)
    if head is None:
        prompts = _prompts_at(db, session, message.created_at)
    else:
        prompts = heads.root(blobs, head)["prompts"]
    return Point(
        head,
        seq,
        _change_at(db, session.id, message.created_at),
        session.message_count - messages.count_after(db, session.id, seq),
        prompts,
    )


def seen_message(db: Db, session_id: str, message_id: str) -> Message:
    """A message of the session or of what it inherits, or NotFound."""
    message = messages.find(db, message_id)
    if message is None or messages.seq_in(db, session_id, message_id) is None:
        raise NotFound(MESSAGE_MISSING)
    return message


def _head_at(db: Db, head_id: str | None, seq: int) -> str | None:
    """The newest head before the one given, or this one, with no message after `seq`."""
    walk = (
        select(_heads.c.id, _heads.c.basis, _heads.c.message_seq)
        .where(_heads.c.id == head_id)
        .cte("walk", recursive=True)
    )
    older = (
        select(_heads.c.id, _heads.c.basis, _heads.c.message_seq)
        .join_from(walk, _heads, _heads.c.id == walk.c.basis)
        .where(walk.c.message_seq > seq)
    )
    walk = walk.union(older)
    found = select(walk.c.id).where(walk.c.message_seq <= seq).limit(1)
    head: str | None = db.connection().execute(found).scalar()
    return head


def _change_at(db: Db, session_id: str, at: int) -> int:
    """The number of the session's last change of what counts, as of a time."""
    mine = _supersessions.c.session_id == session_id
    made = select(func.max(_supersessions.c.change)).where(mine, _supersessions.c.created_at <= at)
    undone = select(func.max(_supersessions.c.undone_change)).where(
        mine, _supersessions.c.undone_at <= at
    )
    return max(int(db.connection().execute(one).scalar() or 0) for one in (made, undone))


def _prompts_at(db: Db, session: SessionRow, at: int) -> dict[str, str]:
    """The session's own prompts without the edits since a time."""
    since = (
        select(_edits)
        .where(_edits.c.session_id == session.id, _edits.c.edited_at > at)
        .order_by(_edits.c.edited_at.desc(), _edits.c.id.desc())
    )
    prompts = dict(session.prompts)
    for row in db.connection().execute(since):
        prompts[prompt_edits.agent_path_of(row.target)] = f"sha256:{row.old_hash}"
    return prompts
