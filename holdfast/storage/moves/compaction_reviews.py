"""The operator's word on a compaction that waits at its checkpoint (K-083, K-084)."""

from __future__ import annotations

from typing import Any

from holdfast.domain.errors import Conflict, ValidationFailed
from holdfast.domain.lifecycle import Action
from holdfast.storage.database.engine import Db
from holdfast.storage.database.tables import SessionRow
from holdfast.storage.database.tables_history import Checkpoint, Compaction
from holdfast.storage.moves import checkpoints, compactions
from holdfast.storage.sessions import admission, messages, runs, sessions

VERDICTS = ("approve", "reject")
TRIGGER = "checkpoint.resume"


def pending_at(db: Db, point: Checkpoint) -> Compaction | None:
    """The compaction that waits at this checkpoint, or None."""
    record = compactions.of_checkpoint(db, point.session_id, point.id)
    return record if record is not None and record.state == "pending" else None


def approve(
    db: Db,
    session: SessionRow,
    point: Checkpoint,
    record: Compaction,
    *,
    review: dict[str, Any],
    new_run_id: str,
    user_id: str,
    command_id: str,
) -> SessionRow:
    """Carry the compaction out as proposed or as edited, and go on in a new run."""
    admission.require_slot(db, session)
    ids = review.get("superseded_message_ids")
    if ids is not None:
        _check_seen(db, session.id, ids)
        record.superseded_message_ids = ids
    if review.get("summary") is not None:
        record.summary = review["summary"]
    compactions.carry_out(db, record, summary=record.summary)
    checkpoints.mark_resumed(db, point, command_id=command_id)
    before = runs.find(db, point.run_id) if point.run_id else None
    runs.create(
        db,
        run_id=new_run_id,
        session_id=session.id,
        message_id=(before.operator_message if before is not None else None) or "",
        user_id=user_id,
        state="running",
        preview="after a reviewed compaction",
    )
    return sessions.move(
        db,
        session.id,
        Action.RESUME,
        TRIGGER,
        run_id=new_run_id,
        active_run=new_run_id,
        current_checkpoint=None,
    )


def reject(
    db: Db, session: SessionRow, point: Checkpoint, record: Compaction, *, command_id: str
) -> SessionRow:
    """Leave every message as it is; the session is idle and the checkpoint rolled back."""
    compactions.reject(db, record)
    checkpoints.mark_resumed(db, point, command_id=command_id)
    checkpoints.mark_rolled_back(db, point)
    return sessions.move(
        db,
        session.id,
        Action.SETTLE,
        TRIGGER,
        run_id=point.run_id,
        active_run=None,
        current_checkpoint=None,
    )


def check_verdict(verdict: str | None, record: Compaction | None) -> None:
    """Refuse a word that means nothing here."""
    if verdict is not None and verdict not in VERDICTS:
        raise ValidationFailed("compaction must be approve or reject")
    if verdict is not None and record is None:
        raise Conflict("no compaction waits at this checkpoint")


def _check_seen(db: Db, session_id: str, message_ids: list[str]) -> None:
    unknown = [one for one in message_ids if messages.seq_in(db, session_id, one) is None]
    if unknown:
        raise ValidationFailed("not messages of this session", {"unknown": unknown[:20]})
