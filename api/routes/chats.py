"""Chats of connectors: say something, look at a chat, end it."""

from __future__ import annotations

import asyncio
from pathlib import Path as FilePath
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Depends, Path, Query
from pydantic import Field

from api.creation import refuse_forbidden
from api.dependencies import CommandId, CurrentOperator, PageLimit, ServicesDep
from api.errors import documented
from api.models import RequestBody, Shown, Text, shows
from api.routes.messages import begun
from api.services import Services
from holdfast.domain.commands import INTERRUPT, REJECT, STEER, Answer, NewMessage
from holdfast.domain.errors import NotFound, Refusal, ValidationFailed
from holdfast.storage.chats import chat_log, delivery, rows
from holdfast.storage.chats.chat_session import ChatSession, Mode, Place
from holdfast.storage.chats.conversations import Wanted, chat_json
from holdfast.storage.chats.delivery import CLEAR, Incoming, Taken
from holdfast.storage.database.engine import Db
from holdfast.storage.sessions import run_views, runs, session_views, sessions
from holdfast.storage.sessions.run_views import RunShown
from holdfast.storage.sessions.session_views import SessionShown

router = APIRouter(tags=["chats"])
CONTENT_CHARS_MAX = 1024 * 1024
LINES_SHOWN = 50
MISSING = "Chat not found."
Name = Annotated[str, Path(min_length=1, max_length=200)]


class ChatMessageBody(RequestBody):
    """What a user of a connector says. Project, folder and source are for a new session."""

    content: Text = Field(min_length=1, max_length=CONTENT_CHARS_MAX)
    on_busy: Literal["queue", "refuse", "steer", "interrupt"] = "refuse"
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
    services: ServicesDep,
    command_id: CommandId,
) -> dict[str, Any]:
    """Find or make the chat's session, then let it answer; `on_busy: queue` waits its turn.

    `steer` is said in the run that goes on, `interrupt` ends that run and begins another.

    `/clear` is answered at once: the message after it begins a new session.
    """
    store, place = services.store, Place(operator.id, user_id, chat_id)
    wanted = await _wanted(services, body)
    chat = await services.chats.at(place, wanted)
    goes_in = body.on_busy if body.on_busy in (STEER, INTERRUPT) else REJECT
    may_wait = body.on_busy == "queue"
    said = Incoming(command_id, body.content, may_wait=may_wait, when_busy=goes_in)
    if body.content.strip() == CLEAR:
        cleared = await chat.change(lambda db, session: delivery.clear(db, place, session, said))
        return await store.aread(lambda db: _cleared(db, place, cleared, command_id))
    taken = await chat.change(
        lambda db, session: delivery.say(db, store.home, place, session, wanted, said)
    )
    answer = None if taken.waits else await _send(services, operator.id, taken, said)
    return await store.aread(lambda db: _taken(db, place, taken, command_id, answer))


@router.get("/chats", responses=shows(200, Shown))
async def list_chats(
    operator: CurrentOperator, services: ServicesDep, limit: PageLimit = 50
) -> dict[str, Any]:
    """The caller's active chats, the one used last first."""
    chats = await (await services.chats.of(operator.id)).active(limit=limit)

    def look(db: Db) -> list[dict[str, Any]]:
        return [_chat_json(db, Place(operator.id, *chat.key), chat) for chat in chats]

    return {"items": await services.store.aread(look), "next_cursor": None}


@router.get("/chats/{user_id}/{chat_id}", responses=shows(200, OpenChatShown) | documented(404))
async def show_chat(
    user_id: Name,
    chat_id: Name,
    operator: CurrentOperator,
    services: ServicesDep,
    new_chat: Annotated[NewChat, Depends(NewChat)],
) -> dict[str, Any]:
    """The active chat with its session and its first lines; one that is not there is made."""
    place = Place(operator.id, user_id, chat_id)
    chat = await services.chats.at(place, await _wanted(services, new_chat))
    return await chat.read(lambda db, session: _look(db, place, session))


@router.get("/chats/{user_id}/{chat_id}/messages", responses=shows(200, Shown) | documented(404))
async def list_chat_messages(
    user_id: Name,
    chat_id: Name,
    operator: CurrentOperator,
    services: ServicesDep,
    limit: PageLimit = 50,
    offset: Annotated[int, Query(ge=0, le=10_000_000)] = 0,
) -> dict[str, Any]:
    """The chat's log by time; it outlives the sessions behind it."""
    place = Place(operator.id, user_id, chat_id)
    active = await (await services.chats.of(operator.id)).find(user_id, chat_id)

    def look(db: Db) -> dict[str, Any]:
        if active is None and not rows.known(db, place) and not chat_log.has_lines(db, place):
            raise NotFound(MISSING)
        lines = chat_log.get_messages(db, place, limit + 1, offset)
        following = str(offset + limit) if len(lines) > limit else None
        return {"items": [vars(line) for line in lines[:limit]], "next_cursor": following}

    return await services.store.aread(look)


@router.delete("/chats/{user_id}/{chat_id}", responses=shows(200, Shown) | documented(404))
async def delete_chat(
    user_id: Name, chat_id: Name, operator: CurrentOperator, services: ServicesDep
) -> dict[str, Any]:
    """Deactivate the chat: its log and its session stay, and a new message begins anew."""
    place = Place(operator.id, user_id, chat_id)
    manager = await services.chats.of(operator.id)
    ended = await manager.deactivate(
        user_id, chat_id, lambda db, _session: chat_log.drop_waiting(db, place)
    )
    if ended is None:
        raise NotFound(MISSING)
    return chat_json(place, ended, waiting=0)


async def _send(
    services: Services, operator_id: str, taken: Taken, said: Incoming
) -> Answer | None:
    """Have the session take the message; None when it is busy after all and the message waits."""
    command = NewMessage(
        command_id=said.id, user_id=operator_id, message_id=said.id, when_busy=said.when_busy
    )
    try:
        answer = await services.commands.send(taken.session, "message", command)
        if answer.waiting and said.when_busy == INTERRUPT:
            await begun(services.store, answer)
        return answer
    except Refusal as refusal:
        wait = refusal.status == 409 and said.may_wait
        if refusal.status < 500:
            state = "queued" if wait else "dropped"
            await services.store.awrite(lambda db: delivery.take_back(db, said.id, state=state))
        if not wait:
            raise
        return None


def _look(db: Db, place: Place, chat: ChatSession) -> dict[str, Any]:
    session = sessions.find(db, chat.session_id)
    return {
        **_chat_json(db, place, chat),
        "session": None if session is None else session_views.view(db, session),
        "messages": [vars(line) for line in chat_log.get_messages(db, place, LINES_SHOWN)],
    }


def _chat_json(db: Db, place: Place, chat: ChatSession) -> dict[str, Any]:
    return chat_json(place, chat, waiting=chat_log.waiting(db, place))


def _cleared(db: Db, place: Place, chat: ChatSession, message_id: str) -> dict[str, Any]:
    session = sessions.find(db, chat.session_id)
    return {
        "chat": _chat_json(db, place, chat),
        "session": None if session is None else session_views.view(db, session),
        "session_id": chat.session_id,
        "message_id": message_id,
        "run": None,
        "queued": False,
        "reason": "cleared",
    }


def _taken(
    db: Db, place: Place, taken: Taken, message_id: str, answer: Answer | None
) -> dict[str, Any]:
    session = sessions.get(db, taken.session.id)
    run = runs.find(db, answer.run_id) if answer is not None and answer.run_id else None
    reason = "busy" if answer is None else answer.reason if answer.queued else None
    return {
        "chat": _chat_json(db, place, taken.chat),
        "session": session_views.view(db, session),
        "session_id": session.id,
        "message_id": message_id,
        "run": None if run is None else run_views.view(db, run),
        "queued": reason is not None,
        "reason": reason,
    }


async def _wanted(services: Services, given: ChatMessageBody | NewChat) -> Wanted:
    folder = None
    if given.working_directory is not None:
        folder = await _folder(given.working_directory)
        refuse_forbidden(services, FilePath(folder))
    return Wanted(given.project, folder, given.mode, given.source)


async def _folder(path: str) -> str:
    folder = FilePath(path)
    if not folder.is_absolute() or not await asyncio.to_thread(folder.is_dir):
        raise ValidationFailed("working_directory is not an existing absolute folder")
    return str(await asyncio.to_thread(folder.resolve))
