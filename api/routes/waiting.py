"""Messages that wait in a busy session: look at them, change them, take them back."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path
from pydantic import Field
from typing_extensions import TypedDict

from api.dependencies import OwnSession, StoreDep
from api.errors import documented
from api.models import RequestBody, Text
from api.openapi import AnswerRoute
from api.routes.sessions import shown
from api.staging import CONTENT_CHARS_MAX
from holdfast.storage.chats import chat_log
from holdfast.storage.database.engine import Db
from holdfast.storage.sessions import waiting
from holdfast.storage.sessions.session_views import SessionShown
from holdfast.storage.sessions.waiting import WaitingShown, waiting_json

router = APIRouter(tags=["messages"], route_class=AnswerRoute)
MessageId = Annotated[str, Path(min_length=1, max_length=64)]


class WaitingBody(RequestBody):
    """Other words for a message that waits."""

    content: Text = Field(min_length=1, max_length=CONTENT_CHARS_MAX)


class WaitingListShown(TypedDict):
    """What waits in a session, all of it."""

    items: list[WaitingShown]
    next_cursor: None


@router.get("/sessions/{session_id}/waiting", responses=documented(404))
async def list_waiting(session: OwnSession, store: StoreDep) -> WaitingListShown:
    """The messages that wait, in the order in which the session comes to them."""
    rows = await store.aread(lambda db: waiting.of_session(db, session.id))
    return {"items": [waiting_json(row) for row in rows], "next_cursor": None}


@router.patch("/sessions/{session_id}/waiting/{message_id}", responses=documented(404, 409))
async def edit_waiting(
    session: OwnSession, message_id: MessageId, body: WaitingBody, store: StoreDep
) -> WaitingShown:
    """Change the words of a message that still waits; 409 once the session has taken it."""
    content = body.content
    row = await store.awrite(lambda db: waiting.edit(db, session.id, message_id, content))
    return waiting_json(row)


@router.delete("/sessions/{session_id}/waiting/{message_id}", responses=documented(404, 409))
async def withdraw_waiting(
    session: OwnSession, message_id: MessageId, store: StoreDep
) -> SessionShown:
    """Take a message back that still waits; 409 once the session has taken it."""

    def withdraw(db: Db) -> None:
        waiting.withdraw(db, session.id, message_id)
        chat_log.mark(db, message_id, "dropped", was="sent")  # it may have come from a chat

    await store.awrite(withdraw)
    return await shown(store, session.id)
