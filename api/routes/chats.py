"""Chats of connectors: say something, look at a chat, end it."""

from __future__ import annotations

import asyncio
from pathlib import Path as FilePath
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Depends, Path, Query
from pydantic import Field

from api.dependencies import (
    CommandId,
    CommandsDep,
    CurrentOperator,
    PageLimit,
    StoreDep,
)
from api.errors import documented
from api.models import RequestBody, Shown, Text, shows
from holdfast.domain.commands import NewMessage
from holdfast.domain.errors import Conflict, NotFound, Refusal, ValidationFailed
from holdfast.storage.chats import conversations, rows
from holdfast.storage.chats.chat_session import Mode
from holdfast.storage.chats.conversations import Place, Wanted
from holdfast.storage.database.engine import Db
from holdfast.storage.database.tables import SessionRow
from holdfast.storage.database.tables_library import Chat
from holdfast.storage.sessions import run_views, runs, session_views, sessions
from holdfast.storage.sessions.run_views import RunShown
from holdfast.storage.sessions.session_views import SessionShown

router = APIRouter(tags=["chats"])
CONTENT_CHARS_MAX = 1024 * 1024
LINES_SHOWN = 50
MISSING = "Chat not found."
Name = Annotated[str, Path(min_length=1, max_length=200)]


class ChatMessageBody(RequestBody):
    """What a user of a connector says. The rest counts only when the chat is new."""

    content: Text = Field(min_length=1, max_length=CONTENT_CHARS_MAX)
    on_busy: Literal["queue", "refuse"] = "refuse"
    project: Text | None = Field(default=None, max_length=64)
    working_directory: Text | None = Field(default=None, max_length=4096)
    mode: Mode | None = None
    source: Text | None = Field(default=None, min_length=1, max_length=64)


class NewChat:
    """What a chat that is not there yet is made with (T-004)."""

    def __init__(
        self,
        project: Annotated[str | None, Query(max_length=64)] = None,
        working_directory: Annotated[str | None, Query(max_length=4096)] = None,
        mode: Annotated[Mode | None, Query()] = None,
        source: Annotated[str | None, Query(min_length=1, max_length=64)] = None,
    ) -> None:
        self.project = project
        self.working_directory = working_directory
        self.mode: str | None = mode
        self.source = source


class ChatShown(Shown):
    """A chat."""

    user_id: str
    chat_id: str
    session_id: str
    message_count: int
    total_cost: float
    mode: str
    is_active: bool
    waiting: int


class OpenChatShown(ChatShown):
    """A chat with its session and its first lines."""

    session: SessionShown | None
    messages: list[dict[str, Any]]


class TakenShown(Shown):
    """A message that runs, or waits."""

    chat: ChatShown
    session: SessionShown
    run: RunShown | None
    session_id: str
    message_id: str
    queued: bool
    reason: str | None


@router.post(
    "/chats/{user_id}/{chat_id}/messages",
    status_code=202,
    responses=shows(202, TakenShown) | documented(404, 409, 410),
)
async def post_chat_message(
    user_id: Name,
    chat_id: Name,
    body: ChatMessageBody,
    operator: CurrentOperator,
    store: StoreDep,
    commands: CommandsDep,
    command_id: CommandId,
) -> dict[str, Any]:
    """Find or make the chat's session, then let it answer; `on_busy: queue` waits its turn."""
    place = Place(operator.id, user_id, chat_id)
    wanted = await _wanted(body)

    def begin(db: Db) -> tuple[Chat, SessionRow, bool]:
        chat, session = conversations.open_chat(db, store.home, place, wanted)
        busy = conversations.is_busy(db, place, session)
        if busy and body.on_busy == "refuse":
            raise Conflict("the chat is busy", {"state": session.state})
        put = conversations.enqueue if busy else conversations.send_now
        put(db, place, session.id, command_id, body.content)
        return chat, session, busy

    chat, session, busy = await store.awrite(begin)
    if busy:
        return await store.aread(lambda db: _taken(db, place, chat, command_id, "busy"))
    command = NewMessage(command_id=command_id, user_id=operator.id, message_id=command_id)
    try:
        answer = await commands.send(session, "message", command)
    except Refusal as refusal:
        wait = refusal.status == 409 and body.on_busy == "queue"
        if refusal.status < 500:
            state = "queued" if wait else "dropped"
            await store.awrite(lambda db: conversations.take_back(db, command_id, state=state))
        if not wait:
            raise
        return await store.aread(lambda db: _taken(db, place, chat, command_id, "busy"))
    reason = answer.reason if answer.queued else None
    return await store.aread(
        lambda db: _taken(db, place, chat, command_id, reason, run_id=answer.run_id)
    )


@router.get("/chats", responses=shows(200, Shown))
async def list_chats(
    operator: CurrentOperator, store: StoreDep, limit: PageLimit = 50
) -> dict[str, Any]:
    """The caller's active chats, the one used last first."""

    def look(db: Db) -> list[dict[str, Any]]:
        chats = rows.of_operator(db, operator.id, limit=limit)
        return [conversations.chat_json(chat, waiting=_waiting(db, chat)) for chat in chats]

    return {"items": await store.aread(look), "next_cursor": None}


@router.get("/chats/{user_id}/{chat_id}", responses=shows(200, OpenChatShown) | documented(404))
async def show_chat(
    user_id: Name,
    chat_id: Name,
    operator: CurrentOperator,
    store: StoreDep,
    new_chat: Annotated[NewChat, Depends(NewChat)],
) -> dict[str, Any]:
    """The active chat with its session and its first lines; one that is not there is made."""
    place = Place(operator.id, user_id, chat_id)
    found = await store.aread(lambda db: _look(db, place))
    if found is not None:
        return found
    wanted = await _wanted(new_chat)

    def make(db: Db) -> dict[str, Any] | None:
        conversations.open_chat(db, store.home, place, wanted)
        return _look(db, place)

    made = await store.awrite(make)
    assert made is not None, "a chat is stored at once"
    return made


@router.get("/chats/{user_id}/{chat_id}/messages", responses=shows(200, Shown) | documented(404))
async def list_chat_messages(
    user_id: Name,
    chat_id: Name,
    operator: CurrentOperator,
    store: StoreDep,
    limit: PageLimit = 50,
    offset: Annotated[int, Query(ge=0, le=10_000_000)] = 0,
) -> dict[str, Any]:
    """The chat's log by time; it outlives the sessions behind it."""
    place = Place(operator.id, user_id, chat_id)

    def look(db: Db) -> dict[str, Any]:
        if not rows.known(db, *place.key):
            raise NotFound(MISSING)
        lines = rows.messages(db, *place.key, limit=limit + 1, offset=offset)
        following = str(offset + limit) if len(lines) > limit else None
        return {"items": [vars(line) for line in lines[:limit]], "next_cursor": following}

    return await store.aread(look)


@router.delete("/chats/{user_id}/{chat_id}", responses=shows(200, Shown) | documented(404))
async def delete_chat(
    user_id: Name, chat_id: Name, operator: CurrentOperator, store: StoreDep
) -> dict[str, Any]:
    """Deactivate the chat: its rows and its session stay, and a new message begins anew."""
    place = Place(operator.id, user_id, chat_id)

    def end(db: Db) -> dict[str, Any]:
        chat = rows.load(db, *place.key)
        if chat is None:
            raise NotFound(MISSING)
        rows.deactivate(db, *place.key)
        return {**conversations.chat_json(chat, waiting=0), "is_active": False}

    return await store.awrite(end)


def _look(db: Db, place: Place) -> dict[str, Any] | None:
    chat = rows.load(db, *place.key)
    if chat is None:
        return None
    session = sessions.find(db, chat.session_id)
    lines = rows.messages(db, *place.key, limit=LINES_SHOWN)
    return {
        **conversations.chat_json(chat, waiting=_waiting(db, chat)),
        "session": None if session is None else session_views.view(db, session),
        "messages": [vars(line) for line in lines],
    }


def _waiting(db: Db, chat: Chat) -> int:
    return rows.waiting(db, chat.operator_id, chat.connector, chat.user_id, chat.chat_id)


def _taken(
    db: Db,
    place: Place,
    chat: Chat,
    message_id: str,
    reason: str | None,
    *,
    run_id: str | None = None,
) -> dict[str, Any]:
    session = sessions.get(db, chat.session_id)
    run = None if run_id is None else runs.find(db, run_id)
    return {
        "chat": conversations.chat_json(chat, waiting=rows.waiting(db, *place.key)),
        "session": session_views.view(db, session),
        "session_id": session.id,
        "message_id": message_id,
        "run": None if run is None else run_views.view(db, run),
        "queued": reason is not None,
        "reason": reason,
    }


async def _wanted(given: ChatMessageBody | NewChat) -> Wanted:
    folder = None if given.working_directory is None else await _folder(given.working_directory)
    return Wanted(given.project, folder, given.mode, given.source)


async def _folder(path: str) -> str:
    folder = FilePath(path)
    if not folder.is_absolute() or not await asyncio.to_thread(folder.is_dir):
        raise ValidationFailed("working_directory is not an existing absolute folder")
    return str(await asyncio.to_thread(folder.resolve))
