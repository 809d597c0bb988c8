"""Lines that a chat's user said, as the HTTP route stores them for delivery."""

from __future__ import annotations

from api.chats import Chats, OpenChat
from holdfast.domain.clock import now_ms
from holdfast.domain.ids import new_id
from holdfast.storage.chats import chat_log
from holdfast.storage.chats.chat_session import ChatSession, LoggedMessage, Place
from holdfast.storage.chats.conversations import Wanted
from holdfast.storage.database.engine import Db
from tests.support.local_worker import LocalWorker


async def open_chat(worker: LocalWorker) -> tuple[Chats, OpenChat, Place]:
    """The API's chats over the worker's store, and one chat with a session in its project."""
    chats = Chats(worker.store, worker.config.chats)
    place = Place(worker.operator_id, "ann", "room")
    return chats, await chats.at(place, Wanted(project_id=worker.project_id)), place


async def queue_lines(chat: OpenChat, place: Place, *texts: str) -> str:
    """Store the lines for delivery; the session that is to answer them."""

    def queue(db: Db, session: ChatSession) -> str:
        for text in texts:
            line = LoggedMessage(
                new_id(), place.user_id, place.chat_id, "user", text, None, None,
                session.session_id, now_ms(), "queued",
            )  # fmt: skip
            chat_log.save_message(db, place, line)
        return session.session_id

    return await chat.change(queue)
