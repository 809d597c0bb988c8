"""Checkpoints: pause points that hold a cursor and what was in effect, never a copy of messages."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sqlalchemy import func, select, tuple_, update

from holdfast.domain.clock import now_ms
from holdfast.domain.commands import STEER
from holdfast.domain.errors import Conflict, NotFound
from holdfast.domain.events import CheckpointCreated, CheckpointResumed
from holdfast.domain.lifecycle import Action, State
from holdfast.domain.tools import CHECKPOINT_TOOL
from holdfast.storage.database.blobs import BlobStore
from holdfast.storage.database.engine import Db
from holdfast.storage.database.rows import insert_once, table
from holdfast.storage.database.tables import Run, SessionRow
from holdfast.storage.database.tables_history import Checkpoint
from holdfast.storage.log import events
from holdfast.storage.moves import heads, prompt_edits
from holdfast.storage.moves.checkpoint_snapshots import snapshot
from holdfast.storage.sessions import (
    admission,
    attention,
    inbox,
    messages,
    runs,
    sessions,
    tool_calls,
    waiting,
)

ACTIVE_MAX = 50
# Who made a checkpoint that was never a pause: a rollback to a message.
AT_MESSAGE = "message"
REASON_CHARS_MAX = 4000
_checkpoints, _runs = table(Checkpoint), table(Run)
_place = tuple_(_checkpoints.c.created_at, _checkpoints.c.id)


def create(
    db: Db,
    blobs: BlobStore,
    *,
    checkpoint_id: str,
    session_id: str,
    created_by: str,
    prompts: Mapping[str, str],
    run_id: str | None = None,
    reason: str = "",
    compaction_id: str | None = None,
    tool_call_id: str | None = None,
) -> Checkpoint:
    """Pause the session at a new checkpoint; the same id twice is one checkpoint.

    `prompts` are the project file's own texts by agent path; the session's edits go over them.
    """
    known = find(db, checkpoint_id)
    if known is not None:
        return known
    session = sessions.lock(db, session_id)
    in_effect = {**prompt_edits.store(db, blobs, prompts), **session.prompts}
    row = Checkpoint(
        id=checkpoint_id,
        session_id=session_id,
        run_id=run_id,
        created_at=now_ms(),
        created_by=created_by,
        reason=reason[:REASON_CHARS_MAX],
        compaction_id=compaction_id,
        message_seq=session.message_seq,
        change=session.change_seq,
        message_count=session.message_count,
        message_history_cursor=messages.newest_id(db, session_id),
        snapshot=snapshot(db, session_id, run_id, tool_call_id=tool_call_id),
        prompts=in_effect,
    )
    sessions.move(
        db,
        session_id,
        Action.PAUSE,
        f"checkpoint.{created_by}",
        run_id=run_id,
        current_checkpoint=checkpoint_id,
    )
    insert_once(db, Checkpoint, row.model_dump())
    _announce(db, row)
    _archive_oldest(db, session_id)
    head_id = heads.create_anyhow(db, blobs, session_id, checkpoint_id=checkpoint_id)
    _set(db, checkpoint_id, head_id=head_id)
    return get(db, session_id, checkpoint_id)


def find(db: Db, checkpoint_id: str) -> Checkpoint | None:
    """The checkpoint, or None."""
    row = db.connection().execute(select(_checkpoints).where(_checkpoints.c.id == checkpoint_id))
    found = row.first()
    return None if found is None else Checkpoint(**found._mapping)


def resumed_for(db: Db, run_id: str | None, tool_call_id: str | None) -> Checkpoint | None:
    """The checkpoint that this call of the tool asked for, if the operator has gone on from it.

    Calls are seen through in order, so the first one that was pending is the one that asked.
    """
    rows = select(_checkpoints).where(
        _checkpoints.c.run_id == run_id,
        _checkpoints.c.created_by == "model",
        _checkpoints.c.resumed_at.is_not(None),
    )
    for row in db.connection().execute(rows.order_by(_checkpoints.c.id.desc()).limit(ACTIVE_MAX)):
        pending = row.snapshot.get("pending_tool_calls", [])
        asked = next((one["id"] for one in pending if one["tool_name"] == CHECKPOINT_TOOL), None)
        if asked is not None and asked == tool_call_id:
            return Checkpoint(**row._mapping)
    return None


def get(db: Db, session_id: str, checkpoint_id: str) -> Checkpoint:
    """The session's checkpoint, or NotFound; one of another session is not found."""
    found = find(db, checkpoint_id)
    if found is None or found.session_id != session_id:
        raise NotFound("Checkpoint not found.")
    return found


def of_session(
    db: Db,
    session_id: str,
    *,
    include_archived: bool = False,
    limit: int,
    before: tuple[int, str] | None = None,
) -> list[Checkpoint]:
    """The session's checkpoints, newest first, those older than (time, id) `before`."""
    rows = select(_checkpoints).where(_checkpoints.c.session_id == session_id)
    if not include_archived:
        rows = rows.where(_checkpoints.c.archived.is_(False))
    if before is not None:
        rows = rows.where(_place < before)
    rows = rows.order_by(_checkpoints.c.created_at.desc(), _checkpoints.c.id.desc()).limit(limit)
    return [Checkpoint(**row._mapping) for row in db.connection().execute(rows)]


def pause_point(db: Db, session: SessionRow, checkpoint_id: str | None) -> Checkpoint:
    """The checkpoint that the session is paused at, or why the named one cannot be resumed."""
    wanted = checkpoint_id or session.current_checkpoint
    if wanted is None:
        raise Conflict("the session is not paused at a checkpoint", {"state": session.state})
    found = get(db, session.id, wanted)
    if found.superseded_by is not None:
        raise Conflict(
            "the checkpoint was superseded by a rollback", {"superseded_by": found.superseded_by}
        )
    if session.state != State.PAUSED or session.current_checkpoint != found.id:
        raise Conflict(
            "the checkpoint is not the current pause point",
            {"state": session.state, "current_checkpoint": session.current_checkpoint},
        )
    return found


def resume(
    db: Db,
    blobs: BlobStore,
    session_id: str,
    checkpoint_id: str | None,
    *,
    command_id: str,
    nothing_left: bool = False,
    message_id: str | None = None,
    user_id: str = "",
) -> SessionRow:
    """Leave the pause point, to `running` if a run goes on and there is a slot, else to `idle`.

    `message_id` names staged words of the operator. A repeated command changes nothing.
    """
    session = sessions.lock(db, session_id)
    if checkpoint_id and command_id:
        done = get(db, session_id, checkpoint_id)
        if done.resumed_command == command_id:
            return session
    point = pause_point(db, session, checkpoint_id)
    run = runs.find(db, session.active_run) if session.active_run else None
    goes_on = run is not None and run.state in runs.ACTIVE and not nothing_left
    if goes_on:
        admission.require_slot(db, session)
    edited = tell_of_edits(db, session, point, run_id=session.active_run)
    mark_resumed(db, point, command_id=command_id, prompts_edited=edited)
    if message_id is not None:
        _say(db, point, message_id, user_id)
    if goes_on:
        return sessions.move(
            db,
            session_id,
            Action.RESUME,
            "checkpoint.resume",
            run_id=point.run_id,
            current_checkpoint=None,
        )
    if run is not None and run.state in runs.ACTIVE:
        runs.close(db, run.id, state="done", finish_reason="stop")
        heads.create_anyhow(db, blobs, session_id, run_id=run.id)
    return sessions.move(
        db,
        session_id,
        Action.SETTLE,
        "checkpoint.resume",
        run_id=point.run_id,
        current_checkpoint=None,
        active_run=None,
    )


def _say(db: Db, point: Checkpoint, message_id: str, user_id: str) -> None:
    """Staged words are the result of the model's call, or said before the model's next call."""
    asked = point.snapshot.get("tool_call_id")
    call = tool_calls.find(db, asked) if asked else None
    if call is None or call.state not in tool_calls.OPEN:
        waiting.keep(
            db,
            point.session_id,
            message_id=message_id,
            when_busy=STEER,
            user_id=user_id,
        )
        return
    staged = inbox.find(db, message_id)
    assert staged is not None, "words are staged before their command is sent"
    said = messages.find(db, call.message_id) if call.message_id else None
    tool_calls.close(
        db,
        call,
        text=staged.content,
        output={"result": staged.content},
        invocation_id=said.invocation_id if said is not None else None,
    )
    inbox.take(db, message_id)


def mark_resumed(db: Db, point: Checkpoint, *, command_id: str, prompts_edited: int = 0) -> None:
    """Note that the session went on from here."""
    _set(db, point.id, resumed_at=now_ms(), resumed_command=command_id or None, last_head=None)
    resumed = CheckpointResumed(
        checkpoint_id=point.id, session_id=point.session_id, prompts_edited=prompts_edited
    )
    events.append(db, point.session_id, resumed, run_id=point.run_id, row=("checkpoint", point.id))


def set_tree(db: Db, checkpoint_id: str, tree: str | None, note: str) -> None:
    """Note the files as they were, or why they were not saved."""
    _set(db, checkpoint_id, tree=tree, tree_note=note)


def trees_in_use(db: Db, *, runs_since: int) -> set[str]:
    """Snapshots that a checkpoint can bring back, and those of runs since a time."""
    mine = [
        select(_checkpoints.c.tree),
        select(_checkpoints.c.undo_tree),
        select(_runs.c.tree_before).where(_runs.c.created_at >= runs_since),
    ]
    return {tree for rows in mine for tree in db.connection().execute(rows).scalars() if tree}


def supersede_after(db: Db, point: Checkpoint) -> int:
    """Supersede the checkpoints that came after this one; how many."""
    later = _checkpoints.c.session_id == point.session_id, _place > (point.created_at, point.id)
    changed = db.connection().execute(
        update(_checkpoints)
        .where(*later, _checkpoints.c.superseded_by.is_(None))
        .values(superseded_by=point.id, last_head=None)
    )
    return changed.rowcount


def mark_rolled_back(db: Db, point: Checkpoint, **columns: Any) -> None:
    """Note that the session went back to here."""
    _set(db, point.id, rolled_back=True, last_head=None, **columns)


def tell_of_edits(db: Db, session: SessionRow, point: Checkpoint, *, run_id: str | None) -> int:
    """K-065: one system message to the primary for each prompt that changed; how many."""
    changed = prompt_edits.changes(point, session)
    for target, old, new in changed:
        messages.append(
            db,
            session.id,
            run_id=run_id,
            role="system",
            content=prompt_edits.NOTICE.format(old=old, new=new),
            meta={"kind": prompt_edits.NOTICE_KIND, "target": target, "checkpoint_id": point.id},
        )
    return len(changed)


def _announce(db: Db, row: Checkpoint) -> None:
    created = CheckpointCreated(
        checkpoint_id=row.id,
        session_id=row.session_id,
        created_by=row.created_by,
        reason=row.reason,
    )
    where: dict[str, Any] = {"run_id": row.run_id, "row": ("checkpoint", row.id)}
    events.append(db, row.session_id, created, **where)
    attention.refresh(db, sessions.get(db, row.session_id))


def _archive_oldest(db: Db, session_id: str) -> None:
    """K-069: at most 50 pauses in the active list; the oldest stay readable, archived."""
    mine = (
        _checkpoints.c.session_id == session_id,
        _checkpoints.c.archived.is_(False),
        _checkpoints.c.created_by != AT_MESSAGE,
    )
    count = db.connection().execute(select(func.count()).where(*mine)).scalar_one()
    if count <= ACTIVE_MAX:
        return
    oldest = (
        select(_checkpoints.c.id)
        .where(*mine)
        .order_by(_checkpoints.c.created_at, _checkpoints.c.id)
        .limit(count - ACTIVE_MAX)
    )
    ids = list(db.connection().execute(oldest).scalars())
    db.connection().execute(
        update(_checkpoints).where(_checkpoints.c.id.in_(ids)).values(archived=True, last_head=None)
    )


def _set(db: Db, checkpoint_id: str, **columns: Any) -> None:
    db.connection().execute(
        update(_checkpoints).where(_checkpoints.c.id == checkpoint_id).values(**columns)
    )
