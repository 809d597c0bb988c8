"""The operator's word on a compaction that waited: carried out as edited, or dropped."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from activities.compaction.job import Job, prepare
from activities.sessions import max_steps
from holdfast.agent.compaction import whole_turns
from holdfast.agent.summary import summary_text
from holdfast.domain.compaction_steps import CompactStep, Reviewed, ReviewStep
from holdfast.domain.errors import Conflict, ValidationFailed
from holdfast.domain.events import CheckpointRolledBack
from holdfast.domain.lifecycle import Action, State
from holdfast.settings.config import Config
from holdfast.storage.database.blobs import BlobStore
from holdfast.storage.database.engine import Db
from holdfast.storage.database.tables import SessionRow
from holdfast.storage.database.tables_history import Checkpoint, Compaction
from holdfast.storage.log import events
from holdfast.storage.moves import checkpoints, compactions
from holdfast.storage.sessions import admission, messages, runs, sessions


@dataclass(frozen=True)
class Review:
    """The operator's edits; None leaves a field as it was proposed."""

    summary: str | None = None
    superseded_message_ids: list[str] | None = None


def read_review(blobs: BlobStore, review_id: str | None) -> Review:
    """The edits that the API staged, if there are any."""
    if review_id is None:
        return Review()
    value: dict[str, Any] = blobs.read_json(review_id)
    return Review(value.get("summary"), value.get("superseded_message_ids"))


def approve(db: Db, blobs: BlobStore, config: Config, step: ReviewStep, review: Review) -> Reviewed:
    """Carry the compaction out and go on in a new run with what is left (K-083)."""
    session = sessions.lock(db, step.session_id)
    if runs.find(db, step.new_run_id) is not None:
        return Reviewed(state=session.state, run_id=step.new_run_id)
    point, record = _waiting(db, session, step)
    admission.require_slot(db, session)
    job = prepare(db, blobs, config, _step_of(record))
    _edit(job, record, review)
    compactions.carry_out(
        db, record, summary=summary_text(record.summary) if record.summary else None
    )
    _new_run(db, session, record, step)
    edited = checkpoints.tell_of_edits(db, session, point, run_id=step.new_run_id)
    checkpoints.mark_resumed(db, point, command_id="", prompts_edited=edited)
    return Reviewed(
        state=State.RUNNING.value,
        run_id=step.new_run_id,
        max_steps=max_steps(job.context.project_file),
    )


def reject(db: Db, step: ReviewStep) -> Reviewed:
    """Drop the compaction; the session is idle with every message (K-084)."""
    session = sessions.lock(db, step.session_id)
    done = compactions.of_checkpoint(db, session.id, step.checkpoint_id)
    if done is not None and done.state == "rejected" and session.state == State.IDLE:
        return Reviewed(state=session.state)
    point, record = _waiting(db, session, step)
    compactions.reject(db, record)
    checkpoints.mark_rolled_back(db, point)
    rolled_back = CheckpointRolledBack(
        checkpoint_id=point.id, session_id=session.id, messages_superseded=0
    )
    events.append(db, session.id, rolled_back, row=("checkpoint", point.id))
    moved = sessions.move(
        db,
        session.id,
        Action.ROLL_BACK,
        "compaction.rejected",
        current_checkpoint=None,
        prompts=point.prompts,  # as after any rollback: edits made here are not in effect (K-066)
    )
    return Reviewed(state=moved.state)


def _waiting(db: Db, session: SessionRow, step: ReviewStep) -> tuple[Checkpoint, Compaction]:
    point = checkpoints.pause_point(db, session, step.checkpoint_id or None)
    record = compactions.find(db, point.compaction_id) if point.compaction_id else None
    if record is None or record.state != "pending":
        raise Conflict("no compaction waits at this checkpoint", {"state": session.state})
    return point, record


def _step_of(record: Compaction) -> CompactStep:
    return CompactStep(
        session_id=record.session_id,
        compaction_id=record.id,
        trigger=record.trigger,
        run_id=record.run_id,
        agent_path=record.agent_path,
        strategy=record.strategy,
    )


def _edit(job: Job, record: Compaction, review: Review) -> None:
    """Take over the operator's edits; a tool call is never separated from its result."""
    if review.superseded_message_ids is not None:
        record.superseded_message_ids = _chosen(job, review.superseded_message_ids)
    if review.summary is not None:
        record.summary = review.summary.strip() or None
    after = job.tokens_after(record.superseded_message_ids, record.summary)
    usable = job.planned().tokens_usable
    record.after_estimate = round(after / usable, 4)
    record.enough = job.frees_enough(after)


def _chosen(job: Job, wanted: list[str]) -> list[str]:
    known = {entry.id for entry in job.entries}
    unknown = [one for one in wanted if one not in known]
    if unknown:
        raise ValidationFailed(
            "superseded_message_ids: not in this context", {"unknown": unknown[:20]}
        )
    spoken = [entry.id for entry in job.entries if entry.role == "user"]
    chosen = whole_turns(job.entries, wanted)
    if spoken and spoken[-1] in chosen:
        raise ValidationFailed(
            "superseded_message_ids: the newest message of the operator always stays"
        )
    return chosen


def _new_run(db: Db, session: SessionRow, record: Compaction, step: ReviewStep) -> None:
    before = runs.find(db, record.run_id) if record.run_id else None
    asked = before.operator_message if before is not None else None
    message = messages.find(db, asked) if asked else None
    runs.create(
        db,
        run_id=step.new_run_id,
        session_id=session.id,
        message_id=asked,
        user_id=step.user_id,
        state="running",
        preview=message.content if message is not None else "",
    )
    sessions.move(
        db,
        session.id,
        Action.RESUME,
        "compaction.approved",
        run_id=step.new_run_id,
        active_run=step.new_run_id,
        current_checkpoint=None,
    )
