"""Messages that were accepted while their session was busy: they wait, in order, for their turn.

The database alone holds them. A session's workflow knows that there are some, never which.
"""

from __future__ import annotations

from sqlalchemy import bindparam, case, delete, func, select

from holdfast.domain.clock import now_ms
from holdfast.domain.commands import INTERRUPT, STEER
from holdfast.domain.control_events import (
    MessageEdited,
    MessageSteered,
    MessageWaiting,
    MessageWithdrawn,
)
from holdfast.domain.errors import Conflict, NotFound
from holdfast.domain.lifecycle import State
from holdfast.storage.database.engine import Db
from holdfast.storage.database.rows import KEY, change, find_row, insert_once, made, table
from holdfast.storage.database.tables import Message, SessionRow, WaitingMessage
from holdfast.storage.log import events, frames
from holdfast.storage.sessions import inbox, messages, sessions
from holdfast.storage.sessions.message_views import MessageShown, message_json

WAITING_MAX = 20
MISSING = "No such message waits in this session."
_waiting, _sessions = table(WaitingMessage), table(SessionRow)
_MINE = _waiting.c.session_id == bindparam(KEY)
_LAST = select(func.coalesce(func.max(_waiting.c.position), 0), func.count()).where(_MINE)
_TAKE = delete(_waiting).where(_waiting.c.id == bindparam(KEY))
_COUNT = select(func.count()).where(_MINE)
# An interrupt goes ahead of what waits for the end of the run.
_IN_TURN = (case((_waiting.c.when_busy == INTERRUPT, 0), else_=1), _waiting.c.position)


class WaitingShown(MessageShown):
    """A message that waits; `seq` is 0 until the conversation has it."""

    when_busy: str
    model_override: str | None


def keep(
    db: Db,
    session_id: str,
    *,
    message_id: str,
    when_busy: str,
    user_id: str,
    run_id: str | None = None,
) -> WaitingMessage:
    """Let a staged message wait; the same id twice waits once, and never again once it was taken.

    `run_id` is the run that it will begin, where one is promised.
    """
    session = sessions.lock(db, session_id)
    known = find(db, message_id)
    if known is not None:
        return known
    staged = inbox.find(db, message_id)
    if staged is None:
        raise NotFound("The message was not staged, or was taken before.")
    last, count = db.connection().execute(_LAST, {KEY: session_id}).one()
    if count >= WAITING_MAX:
        raise Conflict(
            f"{count} messages wait in this session already",
            {"state": session.state, "waiting": count, "max": WAITING_MAX},
        )
    row = WaitingMessage(
        id=message_id,
        session_id=session_id,
        position=last + 1,
        when_busy=when_busy,
        content=staged.content,
        model_override=staged.model_override,
        user_id=user_id,
        run_id=run_id,
        created_at=now_ms(),
    )
    insert_once(db, WaitingMessage, row.model_dump())
    inbox.take(db, message_id)
    told = MessageWaiting(
        session_id=session_id,
        message_id=message_id,
        when_busy=when_busy,
        waiting=_recount(db, session_id),
    )
    events.append(db, session_id, told)
    return row


def find(db: Db, message_id: str) -> WaitingMessage | None:
    """The message, while it waits."""
    return find_row(db, WaitingMessage, message_id)


def of_session(db: Db, session_id: str, *, when_busy: str | None = None) -> list[WaitingMessage]:
    """What waits in a session, in the order in which it will be taken."""
    rows = select(_waiting).where(_waiting.c.session_id == session_id).order_by(*_IN_TURN)
    if when_busy is not None:
        rows = rows.where(_waiting.c.when_busy == when_busy)
    return [made(WaitingMessage, row) for row in db.connection().execute(rows)]


def idle_sessions(db: Db, *, limit: int) -> list[SessionRow]:
    """Up to `limit` idle sessions in which messages wait: their workflow begins the next run."""
    kept = select(_waiting.c.session_id).distinct()
    rows = select(_sessions).where(_sessions.c.id.in_(kept), _sessions.c.state == State.IDLE.value)
    return [made(SessionRow, row) for row in db.connection().execute(rows.limit(limit))]


def take(db: Db, row: WaitingMessage) -> None:
    """The message is in the conversation now."""
    db.connection().execute(_TAKE, {KEY: row.id})
    _recount(db, row.session_id)


def steer(db: Db, session_id: str, run_id: str) -> int:
    """Say in the active run what was meant for it; how many messages that was."""
    session = sessions.lock(db, session_id)
    if session.active_run != run_id:
        return 0
    rows = of_session(db, session_id, when_busy=STEER)
    for row in rows:
        _say(db, row, run_id)
    return len(rows)


def edit(db: Db, session_id: str, message_id: str, content: str) -> WaitingMessage:
    """Change the words of a message that still waits."""
    row = _own(db, session_id, message_id)
    change(db, WaitingMessage, row.id, content=content)
    events.append(db, session_id, MessageEdited(session_id=session_id, message_id=row.id))
    row.content = content
    return row


def withdraw(db: Db, session_id: str, message_id: str) -> None:
    """Take a message back that still waits."""
    row = _own(db, session_id, message_id)
    take(db, row)
    left = sessions.get(db, session_id).waiting
    told = MessageWithdrawn(session_id=session_id, message_id=row.id, waiting=left)
    events.append(db, session_id, told)


def waiting_json(row: WaitingMessage) -> WaitingShown:
    """A message that waits, as the wire shows it."""
    return {
        "id": row.id,
        "session_id": row.session_id,
        "run_id": row.run_id,
        "seq": 0,
        "role": "operator",
        "agent_path": "primary",
        "content": row.content,
        "created_at": row.created_at,
        "superseded": False,
        "superseded_by": [],
        "metadata": {},
        "when_busy": row.when_busy,
        "model_override": row.model_override,
    }


def _say(db: Db, row: WaitingMessage, run_id: str) -> Message:
    if row.model_override is not None:
        change(db, SessionRow, row.session_id, model_override=row.model_override)
    message = messages.append(
        db,
        row.session_id,
        id=row.id,
        run_id=run_id,
        role="operator",
        content=row.content,
        meta={"steered": True},
    )
    take(db, row)
    frames.append(db, row.session_id, ("message", {"message": message_json(message, [])}))
    steered = MessageSteered(session_id=row.session_id, message_id=row.id, run_id=run_id)
    events.append(db, row.session_id, steered, run_id=run_id, row=("message", row.id))
    return message


def _own(db: Db, session_id: str, message_id: str) -> WaitingMessage:
    sessions.lock(db, session_id)
    row = find(db, message_id)
    if row is not None and row.session_id == session_id:
        return row
    said = messages.find(db, message_id)
    if said is not None and said.session_id == session_id:
        raise Conflict("the message does not wait any more: the session has taken it")
    raise NotFound(MISSING)


def _recount(db: Db, session_id: str) -> int:
    count = int(db.connection().execute(_COUNT, {KEY: session_id}).scalar_one())
    change(db, SessionRow, session_id, waiting=count)
    return count
