"""Rollback: the session stands at a checkpoint again; what came after it is kept, superseded."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import select, update

from holdfast.domain.clock import now_ms
from holdfast.domain.errors import Conflict
from holdfast.domain.events import CheckpointRolledBack, CompactionUndone, SubagentFinished
from holdfast.domain.lifecycle import Action, State, next_state
from holdfast.storage.database.engine import Db
from holdfast.storage.database.rows import table
from holdfast.storage.database.tables import Message, SubagentInvocation, ToolCallRow
from holdfast.storage.database.tables_history import Checkpoint, Compaction
from holdfast.storage.log import events
from holdfast.storage.moves import checkpoints, compactions
from holdfast.storage.sessions import messages, runs, sessions, supersessions, tool_calls
from holdfast.storage.sessions.lineage import levels, superseded

INTERRUPTED = "Interrupted: the operator rolled the session back."
_compactions, _messages = table(Compaction), table(Message)
_invocations, _calls = table(SubagentInvocation), table(ToolCallRow)


@dataclass(frozen=True)
class Outcome:
    """What a rollback did."""

    messages_superseded: int = 0
    cancelled_run: str | None = None
    killed_invocations: list[str] = field(default_factory=list)


def roll_back(
    db: Db,
    session_id: str,
    checkpoint_id: str,
    *,
    user_id: str = "",
    command_id: str = "",
    undo_tree: str | None = None,
) -> Outcome:
    """Go back to a checkpoint from `paused` or `idle`; a repeated command changes nothing."""
    session = sessions.lock(db, session_id)
    point = checkpoints.get(db, session_id, checkpoint_id)
    if command_id and point.rolled_back_command == command_id:
        return Outcome(**(point.rolled_back_answer or {}))
    next_state(State(session.state), Action.ROLL_BACK)
    if point.superseded_by is not None:
        raise Conflict(
            "the checkpoint was superseded by a rollback", {"superseded_by": point.superseded_by}
        )
    killed = _kill_subagents(db, session_id)
    cancelled = _cancel_run(db, session.active_run, user_id)
    taken_back = _supersede_after(db, point)
    compactions.abandon_pending(db, session_id)
    _undo_compactions(db, point)
    checkpoints.supersede_after(db, point)
    outcome = Outcome(taken_back, cancelled, killed)
    columns: dict[str, Any] = {
        "rolled_back_command": command_id or None,
        "rolled_back_answer": outcome.__dict__,
    }
    if undo_tree is not None:
        columns["undo_tree"] = undo_tree
    checkpoints.mark_rolled_back(db, point, **columns)
    rolled_back = CheckpointRolledBack(
        checkpoint_id=point.id, session_id=session_id, messages_superseded=taken_back
    )
    events.append(db, session_id, rolled_back, row=("checkpoint", point.id))
    sessions.move(
        db,
        session_id,
        Action.ROLL_BACK,
        "checkpoint.rollback",
        active_run=None,
        current_checkpoint=None,
        current_head=point.head_id,
        prompts=point.prompts,
    )
    return outcome


def _supersede_after(db: Db, point: Checkpoint) -> int:
    """Supersede what was said after the point, inherited words too; how many counted until now."""
    session_id, seq = point.session_id, point.message_seq
    source = levels(db, session_id)[1:2]
    if not source or source[0].cutoff_seq is None or source[0].cutoff_seq <= seq:
        return supersessions.supersede_after(db, session_id, seq, "rollback", point.id)
    later = messages.ids_after(db, session_id, seq)
    gone = superseded(db, levels(db, session_id))
    supersessions.supersede(db, session_id, later, "rollback", point.id)
    return sum(message_id not in gone for message_id in later)


def _cancel_run(db: Db, run_id: str | None, user_id: str) -> str | None:
    """End the run that was paused; its open tool calls say that they were interrupted."""
    if run_id is None:
        return None
    # No result messages here: they would be superseded at once, and the conversation that is
    # left gets its "interrupted" results when it is loaded.
    db.connection().execute(
        update(_calls)
        .where(_calls.c.run_id == run_id, _calls.c.state.in_(tool_calls.OPEN))
        .values(state="failed", output={"error": INTERRUPTED}, completed_at=now_ms())
    )
    ended = runs.close(db, run_id, state="cancelled", finish_reason="rolled_back", user_id=user_id)
    return run_id if ended else None


def _kill_subagents(db: Db, session_id: str) -> list[str]:
    """Mark what was still at work as killed; its processes die with the run's."""
    working = (
        _invocations.c.session_id == session_id,
        _invocations.c.state.in_(("spawned", "running")),
    )
    rows = db.connection().execute(select(_invocations).where(*working)).all()
    for row in rows:
        db.connection().execute(
            update(_invocations)
            .where(_invocations.c.id == row.id)
            .values(state="killed", exited_at=now_ms())
        )
        finished = SubagentFinished(
            invocation_id=row.id, run_id=row.run_id, name=row.subagent_name, state="killed"
        )
        events.append(
            db, session_id, finished, run_id=row.run_id, row=("subagent_invocation", row.id)
        )
    return [row.id for row in rows]


def _undo_compactions(db: Db, point: Checkpoint) -> None:
    """K-085: what was compacted away after the checkpoint counts again; its summary does not."""
    session_id = point.session_id
    compactions.abandon_pending(db, session_id)
    for compaction_id in _compactions_after(db, point):
        restored = supersessions.undo(db, session_id, "compaction", compaction_id)
        row = db.connection().execute(
            update(_compactions)
            .where(_compactions.c.id == compaction_id)
            .values(rolled_back=True, undone_at=now_ms())
            .returning(_compactions.c.summary_message_id)
        )
        summary = row.scalar()
        if summary is not None:
            supersessions.supersede(db, session_id, [summary], "rollback", point.id)
        undone = CompactionUndone(
            compaction_id=compaction_id, session_id=session_id, messages_restored=restored
        )
        events.append(db, session_id, undone, row=("compaction", compaction_id))


def _compactions_after(db: Db, point: Checkpoint) -> list[str]:
    """Compactions whose effect or summary came after the checkpoint, oldest first."""
    ids = supersessions.causes_after(db, point.session_id, point.change, "compaction")
    summarised = (
        select(_compactions.c.id)
        .join(_messages, _messages.c.id == _compactions.c.summary_message_id)
        .where(
            _compactions.c.session_id == point.session_id,
            _compactions.c.rolled_back.is_(False),
            _messages.c.seq > point.message_seq,
        )
        .order_by(_compactions.c.created_at)
    )
    return list(dict.fromkeys([*ids, *db.connection().execute(summarised).scalars()]))
