"""Messages on their way to the session of a chat: sent, waiting, answered or lost."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from sqlalchemy import select

from holdfast.domain.clock import now_ms
from holdfast.domain.commands import REJECT
from holdfast.domain.errors import Conflict
from holdfast.domain.lifecycle import State
from holdfast.storage.chats import chat_log
from holdfast.storage.chats.chat_log import BUSY, RUN_OVER
from holdfast.storage.chats.chat_session import ChatSession, LoggedMessage, Place
from holdfast.storage.chats.conversations import Wanted, answering, is_over
from holdfast.storage.database.engine import Db
from holdfast.storage.database.rows import made, table
from holdfast.storage.database.tables import Message, Run, SessionRow
from holdfast.storage.database.tables_library import ChatMessage
from holdfast.storage.sessions import inbox, messages, sessions, waiting

QUEUED_MAX = 100
CLEAR = "/clear"
_runs, _messages = table(Run), table(Message)


@dataclass(frozen=True)
class Incoming:
    """What a user says; its id is the command's, so that a repeated request says it once."""

    id: str
    content: str
    may_wait: bool
    # `steer` or `interrupt`: it goes to the session at once, also to one that is busy.
    when_busy: str = REJECT


@dataclass(frozen=True)
class Taken:
    """The chat and the session that a message goes to, and whether it waits."""

    chat: ChatSession
    session: SessionRow
    waits: bool


def say(
    db: Db, home: Path, place: Place, chat: ChatSession, wanted: Wanted, said: Incoming
) -> Taken:
    """Stage the message for the chat's session, or let it wait for its turn."""
    line = chat_log.find(db, said.id)
    if line is not None and line.state != "dropped" and line.session_id:
        # The request is repeated: its sender died before it was answered.
        return Taken(chat, sessions.get(db, line.session_id), line.state == "queued")
    session = answering(db, home, place, chat, wanted)
    busy = State(session.state) in BUSY or chat_log.waiting(db, place, session.id) > 0
    busy = busy and said.when_busy == REJECT
    if busy and not said.may_wait:
        raise Conflict("the chat is busy", {"state": session.state})
    if busy and (count := chat_log.waiting(db, place)) >= QUEUED_MAX:
        raise Conflict(f"{count} messages wait in this chat already", {"limit": QUEUED_MAX})
    state = "queued" if busy else "sent"
    if not chat_log.save_message(db, place, _line(place, said, session.id, state)):
        chat_log.mark(db, said.id, state, was="dropped", session_id=session.id)
    if not busy:
        _stage(db, session.id, said.id, said.content)
    return Taken(chat, session, busy)


def clear(db: Db, place: Place, chat: ChatSession, said: Incoming) -> ChatSession:
    """Log the `/clear` and let the next message begin a new session (T-010).

    What waits was said before and stays with the session of before.
    """
    line = _line(place, said, chat.session_id, "done")
    if chat_log.save_message(db, place, line):
        chat.claude_session_id = None
    return chat


def take_back(db: Db, message_id: str, *, state: str) -> None:
    """The session did not take the message: it waits again, or is dropped."""
    if chat_log.mark(db, message_id, state, was="sent"):
        inbox.take(db, message_id)


def claim(db: Db, message_id: str) -> SessionRow | None:
    """Stage a waiting line if it is its turn; the session that it goes to."""
    line = chat_log.find(db, message_id)
    if line is None or line.state != "queued" or not line.session_id:
        return None
    session = sessions.find(db, line.session_id)
    if session is None or session.purged:
        # The chat was removed together with its session.
        chat_log.mark(db, line.id, "dropped", was="queued")
        return None
    if is_over(session) or State(session.state) in BUSY or not chat_log.is_next(db, line):
        return None
    if not chat_log.mark(db, line.id, "sent", was="queued"):
        return None
    _stage(db, session.id, line.id, line.content)
    return session


def redirect(db: Db, home: Path, chat: ChatSession, line: ChatMessage) -> None:
    """What waits for a session that is over waits for the one that answers now."""
    place = place_of(line)
    session = answering(db, home, place, chat, Wanted())
    chat_log.move_waiting(db, place, source=line.session_id or "", target=session.id)


def needs_another(db: Db, line: ChatMessage) -> bool:
    """Whether the line waits for a session that is over."""
    session = sessions.find(db, line.session_id or "")
    return session is not None and not session.purged and is_over(session)


def finished_run(db: Db, line: ChatMessage) -> Run | None:
    """The run in which a sent line was said, once it is over."""
    said_in = select(_messages.c.run_id).where(_messages.c.id == line.id).scalar_subquery()
    taken = _runs.c.session_id == line.session_id, _runs.c.id == said_in
    found = db.connection().execute(select(_runs).where(*taken)).first()
    return None if found is None or found.state not in RUN_OVER else made(Run, found)


def log_answer(db: Db, line: ChatMessage, run: Run) -> bool:
    """Note the answer of a sent line (T-017); False when somebody else did."""
    if not chat_log.mark(db, line.id, "done", was="sent"):
        return False
    answer = messages.find(db, run.primary_response) if run.primary_response else None
    if answer is not None:
        said = LoggedMessage(
            answer.id, line.user_id, line.chat_id, "assistant", answer.content, run.cost_usd,
            run.duration_ms, line.session_id, answer.created_at,
        )  # fmt: skip
        chat_log.save_message(db, place_of(line), said)
    return True


def requeue_lost(db: Db, line: ChatMessage, *, lost_after_ms: int) -> bool:
    """Let a line wait again whose sender died before the session took it."""
    staged = inbox.find(db, line.id)
    sent_at = line.created_at if staged is None else staged.created_at
    taken = messages.find(db, line.id) is not None or waiting.find(db, line.id) is not None
    if taken or now_ms() - sent_at < lost_after_ms:
        return False
    take_back(db, line.id, state="queued")
    return True


def place_of(line: ChatMessage) -> Place:
    """The chat of the line."""
    return Place(line.operator_id, line.user_id, line.chat_id, line.connector)


def _stage(db: Db, session_id: str, message_id: str, content: str) -> None:
    if messages.find(db, message_id) is None:
        inbox.stage(
            db,
            message_id=message_id,
            session_id=session_id,
            content=content,
            model_override=None,
        )


def _line(place: Place, said: Incoming, session_id: str, state: str) -> LoggedMessage:
    return LoggedMessage(
        said.id, place.user_id, place.chat_id, "user", said.content, None, None, session_id,
        now_ms(), state,
    )  # fmt: skip
