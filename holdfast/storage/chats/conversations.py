"""The session behind a chat: found, or made together with the chat's row in one transaction."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sqlalchemy import select, update

from holdfast.domain.clock import now_ms
from holdfast.domain.errors import Conflict
from holdfast.domain.ids import new_id
from holdfast.domain.lifecycle import OVER, State
from holdfast.storage.chats import rows
from holdfast.storage.chats.chat_session import ChatSession, LoggedMessage
from holdfast.storage.database.engine import Db
from holdfast.storage.database.rows import table
from holdfast.storage.database.tables import Run, SessionRow
from holdfast.storage.database.tables_library import Chat, ChatMessage
from holdfast.storage.projects import projects
from holdfast.storage.projects.home_projects import CHATS, home_project
from holdfast.storage.sessions import inbox, messages, sessions

QUEUED_MAX = 100
BUSY = frozenset({State.RUNNING, State.QUEUED, State.PAUSED})
_runs, _log = table(Run), table(ChatMessage)


@dataclass(frozen=True)
class Place:
    """Whose chat it is, and where it takes place."""

    operator_id: str
    user_id: str
    chat_id: str
    connector: str = rows.CONNECTOR

    @property
    def key(self) -> tuple[str, str, str, str]:
        """In the order that `rows` takes it."""
        return self.operator_id, self.connector, self.user_id, self.chat_id


@dataclass(frozen=True)
class Wanted:
    """What a new chat's session is made with."""

    project_id: str | None = None
    working_directory: str | None = None
    mode: str | None = None
    source: str | None = None


def open_chat(db: Db, home: Path, place: Place, wanted: Wanted) -> tuple[Chat, SessionRow]:
    """The chat and its session. A session that is over is followed by a new one."""
    rows.lock(db, *place.key)
    chat = rows.load(db, *place.key)
    session = None if chat is None else sessions.find(db, chat.session_id)
    if chat is None or session is None or session.purged or State(session.state) in OVER:
        session = _new_session(db, home, place, wanted, mode=None if chat is None else chat.mode)
        fresh = ChatSession(
            session.id,
            place.user_id,
            place.chat_id,
            session.working_directory,
            claude_session_id=session.id,
            mode=session.mode,
        )
        rows.save(db, place.operator_id, place.connector, fresh)
    elif wanted.mode is not None and wanted.mode != chat.mode:
        changed = rows.as_session(chat)
        changed.mode = wanted.mode
        rows.save(db, place.operator_id, place.connector, changed)
    found = rows.load(db, *place.key)
    assert found is not None, "a chat is stored at once"
    return found, session


def is_busy(db: Db, place: Place, session: SessionRow) -> bool:
    """Whether a new message has to wait: for the run, or behind others that wait."""
    return State(session.state) in BUSY or rows.waiting(db, *place.key) > 0


def enqueue(db: Db, place: Place, session_id: str, message_id: str, content: str) -> int:
    """Let the message wait its turn; how many wait now."""
    count = rows.waiting(db, *place.key)
    if count >= QUEUED_MAX:
        raise Conflict(f"{count} messages wait in this chat already", {"limit": QUEUED_MAX})
    _log_line(db, place, session_id, message_id, content, "queued")
    return count + 1


def send_now(db: Db, place: Place, session_id: str, message_id: str, content: str) -> None:
    """Stage the message for its session and note it as sent."""
    if not _log_line(db, place, session_id, message_id, content, "sent"):
        rows.mark(db, message_id, "sent")
    if messages.find(db, message_id) is None:
        inbox.stage(
            db,
            message_id=message_id,
            session_id=session_id,
            content=content,
            model_override=None,
        )


def take_back(db: Db, message_id: str, *, state: str) -> None:
    """The session did not take the message: it waits again, or is dropped."""
    inbox.take(db, message_id)
    rows.mark(db, message_id, state)


def claim_next(db: Db, home: Path, line: ChatMessage) -> SessionRow | None:
    """Take a waiting line, if it is its turn, and stage it; the session it goes to."""
    place = Place(line.operator_id, line.user_id, line.chat_id, line.connector)
    if rows.load(db, *place.key) is None:
        rows.mark(db, line.id, "dropped")
        return None
    _, session = open_chat(db, home, place, Wanted())
    if State(session.state) in BUSY or not _is_next(db, place, line):
        return None
    claimed = db.connection().execute(
        update(_log)
        .where(_log.c.id == line.id, _log.c.state == "queued")
        .values(state="sent", session_id=session.id)
    )
    if claimed.rowcount == 0:
        return None
    send_now(db, place, session.id, line.id, line.content)
    return session


def settle(db: Db, line: ChatMessage, *, lost_after_ms: int) -> bool:
    """Log the answer of a sent line once its run is over; whether the line is settled (T-017)."""
    run = db.connection().execute(
        select(_runs).where(
            _runs.c.session_id == line.session_id, _runs.c.operator_message == line.id
        )
    )
    found = run.first()
    if found is None:
        return _settle_lost(db, line, lost_after_ms)
    if found.state not in ("done", "failed", "cancelled"):
        return False
    if not rows.mark(db, line.id, "done", was="sent"):
        return True
    place = Place(line.operator_id, line.user_id, line.chat_id, line.connector)
    answer = messages.find(db, found.primary_response) if found.primary_response else None
    if answer is not None:
        said = LoggedMessage(
            answer.id, line.user_id, line.chat_id, "assistant", answer.content, found.cost_usd,
            found.duration_ms, line.session_id, answer.created_at,
        )  # fmt: skip
        rows.log(db, place.operator_id, place.connector, said)
    rows.add_result(db, line.session_id or "", cost=found.cost_usd or 0.0)
    return True


def chat_json(chat: Chat, *, waiting: int) -> dict[str, Any]:
    """The chat as the wire shows it."""
    return {**chat.model_dump(exclude={"operator_id"}), "waiting": waiting}


def _settle_lost(db: Db, line: ChatMessage, lost_after_ms: int) -> bool:
    """Whoever sent the line died before the session took it: let it wait again."""
    if now_ms() - line.created_at < lost_after_ms or messages.find(db, line.id) is not None:
        return False
    take_back(db, line.id, state="queued")
    return True


def _is_next(db: Db, place: Place, line: ChatMessage) -> bool:
    earlier = select(_log.c.id).where(
        _log.c.operator_id == place.operator_id,
        _log.c.connector == place.connector,
        _log.c.user_id == place.user_id,
        _log.c.chat_id == place.chat_id,
        _log.c.state.in_(("queued", "sent")),
        (_log.c.created_at < line.created_at)
        | ((_log.c.created_at == line.created_at) & (_log.c.id < line.id)),
    )
    return db.connection().execute(earlier.limit(1)).first() is None


def _log_line(
    db: Db, place: Place, session_id: str, message_id: str, content: str, state: str
) -> bool:
    line = LoggedMessage(
        message_id, place.user_id, place.chat_id, "user", content, None, None, session_id,
        now_ms(), state,
    )  # fmt: skip
    return rows.log(db, place.operator_id, place.connector, line)


def _new_session(
    db: Db, home: Path, place: Place, wanted: Wanted, *, mode: str | None
) -> SessionRow:
    session_id = new_id()
    if wanted.project_id is not None:
        project = projects.get(db, place.operator_id, wanted.project_id)
        folder = wanted.working_directory or project.path
    else:
        project = home_project(db, home, place.operator_id, CHATS, place.operator_id)
        folder = wanted.working_directory or str(Path(project.path) / session_id)
        if wanted.working_directory is None:
            Path(folder).mkdir(exist_ok=True, mode=0o700)
    if project.state != "ready":
        raise Conflict("the project is not ready: its project file is invalid", project.error)
    return sessions.create(
        db,
        SessionRow(
            id=session_id,
            project_id=project.id,
            created_by=place.operator_id,
            working_directory=folder,
            dsl_hash=project.dsl_hash,
            source=wanted.source or "chat",
            mode=wanted.mode or mode or "plan",
        ),
    )
