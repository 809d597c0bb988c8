"""Compactions: what each saw, did and cost; its effect is supersessions, so it can be undone."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, NotRequired, cast

from sqlalchemy import bindparam, delete, func, select, tuple_
from typing_extensions import TypedDict

from holdfast.domain.clock import now_ms
from holdfast.domain.errors import Conflict, NotFound
from holdfast.domain.events import CompactionFinished, CompactionPending, CompactionUndone
from holdfast.domain.lifecycle import State
from holdfast.storage.database.engine import Db
from holdfast.storage.database.rows import change, fields_of, insert_once, table
from holdfast.storage.database.tables import Call, Message
from holdfast.storage.database.tables_history import Compaction
from holdfast.storage.log import events, frames
from holdfast.storage.sessions import messages, sessions, supersessions
from holdfast.storage.sessions.lineage import CauseShown
from holdfast.storage.sessions.message_views import MessageShown, message_json

RECORDS_MAX = 1000
COLLAPSED_AT_ONCE = 100
SUMMARY_KIND = "summary"
NOTES_CHARS_MAX = 4000
_compactions, _calls = table(Compaction), table(Call)
_place = tuple_(_compactions.c.created_at, _compactions.c.id)
_CHANGED_AT = select(
    func.max(func.coalesce(_compactions.c.undone_at, _compactions.c.finished_at, 0))
).where(
    _compactions.c.session_id == bindparam("session"),
    _compactions.c.agent_path == bindparam("path"),
)

_OF_AGENT = (
    _compactions.c.session_id == bindparam("session"),
    _compactions.c.agent_path == bindparam("path"),
)
_NEWEST = (
    select(_compactions)
    .where(*_OF_AGENT, _compactions.c.state.in_(("done", "rejected")))
    .order_by(_compactions.c.created_at.desc(), _compactions.c.id.desc())
    .limit(1)
)
_CORRECTION = (
    select(_compactions.c.correction)
    .where(*_OF_AGENT, _compactions.c.correction.is_not(None))
    .order_by(_compactions.c.created_at.desc(), _compactions.c.id.desc())
    .limit(1)
)


class StoredCompaction(TypedDict):
    """The fields of a compaction that are columns of its row."""

    id: str
    session_id: str
    run_id: str | None
    agent_path: str
    created_at: int
    finished_at: int | None
    undone_at: int | None
    state: str
    trigger: str
    strategy: str
    threshold_estimate: float
    after_estimate: float
    window_upper: float
    window_lower: float
    window_tokens: int
    superseded_message_ids: list[str]
    summary_message_id: str | None
    summary: str | None
    plugins_fired: list[dict[str, Any]]
    plugin_cost: dict[str, Any] | None
    fallback_occurred: bool
    fallback_reason: str | None
    operator_flag: str | None
    operator_notes: str | None
    checkpoint_id: str | None
    rolled_back: bool
    collapsed_count: int


class CompactionShown(StoredCompaction):
    """A record of K-072 to K-080."""

    dropped: NotRequired[list[MessageShown]]


def carry_out(
    db: Db, record: Compaction, *, summary: str | None, invocation_id: str | None = None
) -> Compaction:
    """Supersede what the record names, put the summary in its place, and store the record."""
    known = find(db, record.id)
    if known is not None and known.state == "done":
        return known
    supersessions.supersede(
        db, record.session_id, record.superseded_message_ids, "compaction", record.id
    )
    if summary is not None:
        message = _summary_message(db, record, summary, invocation_id)
        record.summary_message_id = message.id
    record.state = "done"
    record.finished_at = now_ms()
    _store(db, record)
    finished = CompactionFinished(
        compaction_id=record.id,
        session_id=record.session_id,
        trigger=record.trigger,
        strategy=record.strategy,
        superseded=len(record.superseded_message_ids),
    )
    _say(db, record, finished)
    _collapse_oldest(db, record.session_id)
    return record


def hold(db: Db, record: Compaction) -> None:
    """Store a record that waits for the operator; no message is superseded yet."""
    record.state = "pending"
    _store(db, record)
    pending = CompactionPending(
        compaction_id=record.id,
        session_id=record.session_id,
        checkpoint_id=record.checkpoint_id or "",
    )
    _say(db, record, pending)


def reject(db: Db, record: Compaction) -> None:
    """K-084: the operator said no; nothing was superseded and nothing will be."""
    change(
        db,
        Compaction,
        record.id,
        state="rejected",
        superseded_message_ids=[],
        fallback_occurred=True,
        fallback_reason="operator_rejected",
        finished_at=now_ms(),
    )


def abandon_pending(db: Db, session_id: str) -> None:
    """A rollback went past a compaction that still waited for the operator."""
    waiting = _compactions.c.session_id == session_id, _compactions.c.state == "pending"
    for record_id in db.connection().execute(select(_compactions.c.id).where(*waiting)).scalars():
        change(db, Compaction, record_id, state="rejected", rolled_back=True, finished_at=now_ms())


def undo(db: Db, session_id: str, compaction_id: str) -> int:
    """Bring back what the session's newest compaction took out; how many messages."""
    session = sessions.lock(db, session_id)
    if session.state not in (State.IDLE, State.PAUSED):
        raise Conflict(f"cannot undo a compaction while {session.state}", {"state": session.state})
    record = get(db, session_id, compaction_id)
    if record.state != "done" or record.rolled_back:
        raise Conflict("the compaction is not in effect", {"state": record.state})
    newer = _newer_in_effect(db, record)
    if newer is not None:
        raise Conflict("a newer compaction builds on this one; undo it first", {"newer": newer})
    restored = supersessions.undo(db, session_id, "compaction", record.id)
    if record.summary_message_id is not None:
        # Not the cause `compaction`: a rollback would undo that and bring the summary back.
        supersessions.supersede(db, session_id, [record.summary_message_id], "discard", record.id)
    change(db, Compaction, record.id, rolled_back=True, undone_at=now_ms())
    undone = CompactionUndone(
        compaction_id=record.id, session_id=session_id, messages_restored=restored
    )
    _say(db, record, undone)
    return restored


def find(db: Db, compaction_id: str) -> Compaction | None:
    """The record, or None."""
    row = db.connection().execute(select(_compactions).where(_compactions.c.id == compaction_id))
    found = row.first()
    return None if found is None else Compaction(**found._mapping)


def get(db: Db, session_id: str, compaction_id: str) -> Compaction:
    """The session's record, or NotFound."""
    found = find(db, compaction_id)
    if found is None or found.session_id != session_id:
        raise NotFound("Compaction not found.")
    return found


def of_checkpoint(db: Db, session_id: str, checkpoint_id: str) -> Compaction | None:
    """The compaction that waits at this checkpoint, or waited there."""
    rows = select(_compactions).where(
        _compactions.c.session_id == session_id, _compactions.c.checkpoint_id == checkpoint_id
    )
    found = db.connection().execute(rows.limit(1)).first()
    return None if found is None else Compaction(**found._mapping)


def page(
    db: Db, session_id: str, *, limit: int, before: tuple[int, str] | None = None
) -> list[Compaction]:
    """The session's records, newest first, those older than (time, id) `before`."""
    rows = select(_compactions).where(_compactions.c.session_id == session_id)
    if before is not None:
        rows = rows.where(_place < before)
    rows = rows.order_by(_compactions.c.created_at.desc(), _compactions.c.id.desc()).limit(limit)
    return [Compaction(**row._mapping) for row in db.connection().execute(rows)]


def give_feedback(
    db: Db, session_id: str, compaction_id: str, values: dict[str, Any]
) -> Compaction:
    """Note what the operator thinks of it (K-079); only the given fields change."""
    record = get(db, session_id, compaction_id)
    if values:
        change(db, Compaction, record.id, **values)
    return get(db, session_id, compaction_id)


def changed_at(db: Db, session_id: str, agent_path: str) -> int:
    """When a compaction last changed the agent's context; 0 when none ever did.

    Token counts that a provider reported before that say nothing about the context of now.
    """
    values = {"session": session_id, "path": agent_path}
    return int(db.connection().execute(_CHANGED_AT, values).scalar() or 0)


def correction(db: Db, session_id: str, agent_path: str) -> float:
    """Tokens as the provider counts them for one of our estimate, as last measured; 1 at first."""
    values = {"session": session_id, "path": agent_path}
    return float(db.connection().execute(_CORRECTION, values).scalar() or 1.0)


def held_at(db: Db, session_id: str, agent_path: str) -> float | None:
    """How full the context was when compacting it was rejected or freed too little, else None."""
    values = {"session": session_id, "path": agent_path}
    newest = db.connection().execute(_NEWEST, values).first()
    if newest is None or newest.rolled_back:
        return None
    if newest.state == "rejected":
        return float(newest.threshold_estimate)
    return None if newest.enough else float(newest.after_estimate)


def summary_of_request(db: Db, session_id: str, request_ref: str) -> str | None:
    """The summary that the same request to a model was answered with before, if any."""
    made = (
        select(_compactions.c.summary)
        .join(_calls, _calls.c.id == _compactions.c.id)
        .where(
            _compactions.c.session_id == session_id,
            _compactions.c.summary.is_not(None),
            _calls.c.session_id == session_id,
            _calls.c.request_ref == request_ref,
            _calls.c.status == "done",
        )
        .order_by(_compactions.c.created_at.desc())
    )
    found: str | None = db.connection().execute(made.limit(1)).scalar()
    return found


def view(record: Compaction, dropped: Sequence[Message] | None = None) -> CompactionShown:
    """A record as it is sent; with `dropped`, what it took out can be read."""
    shown = cast(CompactionShown, fields_of(record, StoredCompaction))
    if dropped is not None:
        cause: list[CauseShown] = [{"cause": "compaction", "cause_id": record.id}]
        in_effect = record.state == "done" and not record.rolled_back
        shown["dropped"] = [
            message_json(message, cause if in_effect else []) for message in dropped
        ]
    return shown


def dropped(db: Db, record: Compaction) -> list[Message]:
    """The messages that the compaction took out, in order."""
    return messages.by_ids(db, record.superseded_message_ids)


def _summary_message(
    db: Db, record: Compaction, summary: str, invocation_id: str | None
) -> Message:
    message = messages.append(
        db,
        record.session_id,
        run_id=record.run_id,
        role="system",
        agent_path=record.agent_path,
        invocation_id=invocation_id,
        content=summary,
        meta={"kind": SUMMARY_KIND, "compaction_id": record.id},
    )
    frames.append(db, record.session_id, ("message", {"message": message_json(message, [])}))
    return message


def _store(db: Db, record: Compaction) -> None:
    values = record.model_dump()
    if not insert_once(db, Compaction, values):
        change(db, Compaction, values.pop("id"), **values)


def _say(
    db: Db, record: Compaction, event: CompactionFinished | CompactionPending | CompactionUndone
) -> None:
    events.append(db, record.session_id, event, run_id=record.run_id, row=("compaction", record.id))


def _newer_in_effect(db: Db, record: Compaction) -> str | None:
    newer = select(_compactions.c.id).where(
        _compactions.c.session_id == record.session_id,
        _compactions.c.agent_path == record.agent_path,
        _compactions.c.state == "done",
        _compactions.c.rolled_back.is_(False),
        _place > (record.created_at, record.id),
    )
    found: str | None = db.connection().execute(newer.limit(1)).scalar()
    return found


def _collapse_oldest(db: Db, session_id: str) -> None:
    """K-086: at the limit the oldest records become one row; their effect stays as it is."""
    mine = _compactions.c.session_id == session_id
    count = db.connection().execute(select(func.count()).where(mine)).scalar_one()
    if count <= RECORDS_MAX:
        return
    rows = select(_compactions).where(mine).order_by(_compactions.c.created_at, _compactions.c.id)
    oldest = [
        Compaction(**row._mapping)
        for row in db.connection().execute(rows.limit(COLLAPSED_AT_ONCE)).all()
    ]
    last = oldest[-1]
    total = sum(one.collapsed_count or 1 for one in oldest)
    before = datetime.fromtimestamp(last.created_at / 1000, UTC).isoformat(timespec="seconds")
    kept = Compaction(
        id=last.id,
        session_id=session_id,
        agent_path=last.agent_path,
        created_at=last.created_at,
        finished_at=last.finished_at,
        state="collapsed",
        collapsed_count=total,
        trigger=last.trigger,
        strategy=last.strategy,
        summary=f"{total} compactions before {before}",
    )
    db.connection().execute(
        delete(_compactions).where(_compactions.c.id.in_([one.id for one in oldest]))
    )
    insert_once(db, Compaction, kept.model_dump())
