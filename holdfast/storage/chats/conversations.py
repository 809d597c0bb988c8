"""The session that answers in a chat: the chat's own, or a new one after an end or a `/clear`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from holdfast.domain.errors import Conflict
from holdfast.domain.ids import new_id
from holdfast.domain.lifecycle import OVER, State
from holdfast.storage.chats.chat_session import ChatSession, Place, to_ms
from holdfast.storage.database.engine import Db
from holdfast.storage.database.tables import Project, SessionRow
from holdfast.storage.projects import projects
from holdfast.storage.sessions import sessions

FOLDER = "chats"


@dataclass(frozen=True)
class Wanted:
    """What a new session of a chat is made with; else as the one before, or a folder of its own."""

    project_id: str | None = None
    working_directory: str | None = None
    mode: str | None = None
    source: str | None = None


def answering(db: Db, home: Path, place: Place, chat: ChatSession, wanted: Wanted) -> SessionRow:
    """The session that takes the chat's next message; a new one is noted in `chat`."""
    chat.mode = wanted.mode or chat.mode
    current = sessions.find(db, chat.claude_session_id) if chat.claude_session_id else None
    if current is not None and not is_over(current):
        return current
    session = _new_session(db, home, place, chat, wanted)
    chat.session_id = chat.claude_session_id = session.id
    chat.working_directory = session.working_directory
    return session


def is_over(session: SessionRow) -> bool:
    """Whether the session takes no more messages."""
    return session.purged or State(session.state) in OVER


def chat_json(place: Place, chat: ChatSession, *, waiting: int) -> dict[str, Any]:
    """The chat as the wire shows it."""
    times = {"created_at": to_ms(chat.created_at), "last_used": to_ms(chat.last_used)}
    return {**vars(chat), **times, "connector": place.connector, "waiting": waiting}


def _new_session(db: Db, home: Path, place: Place, chat: ChatSession, wanted: Wanted) -> SessionRow:
    before = sessions.find(db, chat.session_id)
    session_id = chat.session_id if before is None else new_id()
    project, folder = _where(db, home, place, wanted, before, session_id)
    if project.state != "ready":
        raise Conflict("the project is not ready: its project file is invalid", project.error)
    return sessions.create(
        db,
        SessionRow(
            id=session_id,
            created_by=place.operator_id,
            working_directory=folder,
            **projects.session_columns(project),
            source=wanted.source or (before.source if before else None) or "chat",
            mode=chat.mode,
        ),
    )


def _where(
    db: Db,
    home: Path,
    place: Place,
    wanted: Wanted,
    before: SessionRow | None,
    session_id: str,
) -> tuple[Project, str]:
    """The project and the folder of a new session."""
    if wanted.project_id is not None:
        project = projects.get(db, place.operator_id, wanted.project_id)
        return project, wanted.working_directory or project.path
    if before is not None:
        project = projects.get(db, place.operator_id, before.project_id)
        return project, wanted.working_directory or before.working_directory
    project = projects.load_in_home(db, home, place.operator_id, FOLDER, place.operator_id)
    if wanted.working_directory is not None:
        return project, wanted.working_directory
    folder = Path(project.path) / session_id
    folder.mkdir(exist_ok=True, mode=0o700)
    return project, str(folder)
