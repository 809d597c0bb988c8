"""What a session needs from a person: one answer, worked out whenever one of its sources changes.

To add a kind, name it in `Kind` and add its source to SOURCES; whoever changes what the source
reads calls `refresh` in the same transaction.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, NotRequired, cast

from sqlalchemy import func, select
from typing_extensions import TypedDict

from holdfast.domain.control_events import AttentionCleared, AttentionRequired
from holdfast.domain.lifecycle import State
from holdfast.storage.approvals import approvals
from holdfast.storage.database.engine import Db
from holdfast.storage.database.rows import change, find_row, table
from holdfast.storage.database.tables import Run, SessionRow
from holdfast.storage.database.tables_history import Checkpoint
from holdfast.storage.hosts import hosts
from holdfast.storage.log import events

Kind = Literal["approval", "question", "run_failed", "compaction", "budget", "host_away"]
TEXT_CHARS_MAX = 500
SUMMARY_CHARS = 200
AT_WORK = frozenset({State.RUNNING, State.QUEUED, State.PAUSED})
# Whose pause asks for what; the operator's own asks for nothing.
PAUSES: dict[str, Kind] = {
    "model": "question",
    "stuck": "question",
    "compaction": "compaction",
    "budget": "budget",
}
# The event's older names for kinds.
_EVENT_KINDS = {
    "question": "checkpoint",
    "compaction": "checkpoint",
    "budget": "checkpoint",
    "approval": "approval_gate",
}
_sessions = table(SessionRow)


class AttentionShown(TypedDict):
    """What a session needs from a person, since when (ms), and what it is about."""

    kind: Kind
    text: str
    since: int
    run_id: NotRequired[str]
    approval_id: NotRequired[str]
    checkpoint_id: NotRequired[str]


Source = Callable[[Db, SessionRow], AttentionShown | None]


def needed(kind: Kind, text: str, since: int, **about: str | None) -> AttentionShown:
    """An answer of a source; `about` are the ids of AttentionShown, None where there is none."""
    named = {name: one for name, one in about.items() if one is not None}
    shown = {"kind": kind, "text": text[:TEXT_CHARS_MAX], "since": since, **named}
    return cast(AttentionShown, shown)


def refresh(db: Db, session: SessionRow) -> None:
    """Store what the session needs now, and say so where that is something else than before."""
    found = next(filter(None, (source(db, session) for source in SOURCES)), None)
    before = session.attention
    if found == before:
        return
    session.attention = None if found is None else dict(found)
    session.attention_kind = None if found is None else found["kind"]
    kept = {"attention": session.attention, "attention_kind": session.attention_kind}
    change(db, SessionRow, session.id, **kept)
    if found is None:
        assert before is not None, "nothing follows something"
        cleared = AttentionCleared(session_id=session.id, attention_kind=str(before["kind"]))
        events.append(db, session.id, cleared, row=("session", session.id))
    else:
        _tell(db, session.id, found)


def look_again(db: Db, session_id: str) -> None:
    """`refresh` for those who do not hold the session's row."""
    session = find_row(db, SessionRow, session_id, lock=True)
    if session is not None:
        refresh(db, session)


def see(db: Db, session_id: str) -> None:
    """Somebody has seen that a run failed; other needs stay until they are met."""
    session = find_row(db, SessionRow, session_id, lock=True)
    if session is not None and session.failed_run_id is not None:
        change(db, SessionRow, session_id, failed_run_id=None)
        session.failed_run_id = None
        refresh(db, session)


def count_by_kind(db: Db) -> dict[str, int]:
    """How many sessions need what."""
    kind = _sessions.c.attention_kind
    rows = select(kind, func.count()).where(kind.is_not(None), _sessions.c.purged.is_(False))
    return {str(name): int(count) for name, count in db.connection().execute(rows.group_by(kind))}


def _at_pause(db: Db, session: SessionRow) -> AttentionShown | None:
    """A pause that the operator did not ask for."""
    if session.state != State.PAUSED or session.current_checkpoint is None:
        return None
    point = find_row(db, Checkpoint, session.current_checkpoint)
    kind = PAUSES.get(point.created_by) if point is not None else None
    if point is None or kind is None:
        return None
    text = point.reason or f"The session waits at a checkpoint ({kind})."
    return needed(kind, text, point.created_at, run_id=point.run_id, checkpoint_id=point.id)


def _approval(db: Db, session: SessionRow) -> AttentionShown | None:
    """A call that waits for an operator's word; of several, the one asked about first."""
    asked = approvals.oldest_pending(db, session.id) if session.state in AT_WORK else None
    if asked is None:
        return None
    about = {"run_id": asked.run_id, "approval_id": asked.id}
    return needed("approval", asked.title, asked.asked_at, **about)


def _host_away(db: Db, session: SessionRow) -> AttentionShown | None:
    """Work that waits for a machine of which nobody has heard for a while."""
    if session.host_id is None or session.state not in AT_WORK:
        return None
    host = hosts.find(db, session.host_id)
    if host is None or not host.away_told:
        return None
    text = f"The host {host.name} is away; what needs it waits."
    return needed("host_away", text, host.seen_at, run_id=session.active_run)


def _run_failed(db: Db, session: SessionRow) -> AttentionShown | None:
    """A failed run that nobody has seen yet, and after which nothing was said."""
    run = find_row(db, Run, session.failed_run_id) if session.failed_run_id else None
    if run is None or session.state == State.ENDED:
        return None
    text = str((run.error or {}).get("message") or "The run failed.")
    return needed("run_failed", text, run.completed_at or run.created_at, run_id=run.id)


# The first that answers counts.
SOURCES: tuple[Source, ...] = (_at_pause, _approval, _host_away, _run_failed)


def _tell(db: Db, session_id: str, found: AttentionShown) -> None:
    checkpoint_id, run_id = found.get("checkpoint_id"), found.get("run_id")
    told = AttentionRequired(
        session_id=session_id,
        attention_kind=_EVENT_KINDS.get(found["kind"], found["kind"]),
        summary=found["text"][:SUMMARY_CHARS],
        run_id=run_id,
        attention=dict(found),
    )
    row = ("session", session_id) if checkpoint_id is None else ("checkpoint", checkpoint_id)
    events.append(db, session_id, told, run_id=run_id, row=row)
