"""Messages: stage the content, then ask the session to take it; and what was said so far."""

from __future__ import annotations

import asyncio
from typing import Annotated, Literal, NotRequired

from fastapi import APIRouter, Query
from pydantic import Field
from typing_extensions import TypedDict

from api.dependencies import (
    CommandId,
    CommandsDep,
    CurrentOperator,
    OwnSession,
    PageCursor,
    PageLimit,
    ServicesDep,
    StoreDep,
)
from api.errors import documented, gone_as_conflict
from api.models import MessagesShown, RequestBody, Text
from api.openapi import AnswerRoute
from api.routes.sessions import shown
from holdfast.domain.commands import Answer, Command, NewMessage, Resume
from holdfast.domain.errors import Conflict, Refusal, ValidationFailed
from holdfast.domain.ids import new_id
from holdfast.domain.lifecycle import State, allowed_actions
from holdfast.storage.database.engine import Db
from holdfast.storage.database.opening import OpenStore
from holdfast.storage.database.tables import SessionRow
from holdfast.storage.sessions import inbox, messages, run_views, runs, session_views, sessions
from holdfast.storage.sessions.message_views import MessageShown, message_json, turn_json
from holdfast.storage.sessions.run_views import RunShown
from holdfast.storage.sessions.session_views import SessionShown
from holdfast.temporal.sessions import SessionCommands

router = APIRouter(tags=["messages"], route_class=AnswerRoute)
CONTENT_CHARS_MAX = 1024 * 1024
LATEST = "latest"
STALE_S, STALE_RETRY_S = 10.0, 0.25


class MessageBody(RequestBody):
    """A message, and optionally the model that answers from now on."""

    content: Text = Field(min_length=1, max_length=CONTENT_CHARS_MAX)
    model_override: Text | None = Field(default=None, max_length=200)


class AcceptedShown(TypedDict):
    """A message that was taken."""

    message: MessageShown
    run: RunShown
    session: SessionShown
    queued: NotRequired[bool]
    reason: NotRequired[str | None]


@router.post(
    "/sessions/{session_id}/messages",
    status_code=202,
    response_description="taken: running, or queued",
    responses=documented(404, 409, 410),
)
async def post_message(
    session: OwnSession,
    body: MessageBody,
    operator: CurrentOperator,
    services: ServicesDep,
    commands: CommandsDep,
    command_id: CommandId,
) -> AcceptedShown:
    """Stage the content, then ask the session to take it."""
    if body.model_override is not None:
        services.configuration.check_model(body.model_override)
    command = NewMessage(command_id=command_id, user_id=operator.id, message_id=command_id)
    return await send_message(services.store, commands, session, command, body)


async def send_message(
    store: OpenStore,
    commands: SessionCommands,
    session: SessionRow,
    command: NewMessage,
    body: MessageBody,
) -> AcceptedShown:
    """Stage the content under the id of the message, then ask the session to take it."""
    await store.awrite(lambda db: _stage(db, session.id, command.message_id, body))
    try:
        answer = await _sent(commands, store, session, command)
    except Refusal as refusal:
        if refusal.status < 500:
            await store.awrite(lambda db: inbox.take(db, command.message_id))
        raise
    return await store.aread(lambda db: _accepted(db, session.id, answer))


async def _sent(
    commands: SessionCommands, store: OpenStore, session: SessionRow, command: NewMessage
) -> Answer:
    """Send the message. A worker that died right after a run ended leaves a workflow that believes
    in that run for some seconds: where nothing has moved since the session was idle, ask again."""
    deadline = asyncio.get_running_loop().time() + STALE_S
    while True:
        try:
            return await commands.send(session, "message", command)
        except Conflict:
            now = await store.aread(lambda db: sessions.get(db, session.id))
            unmoved = now.state == State.IDLE and now.version == session.version
            if not unmoved or asyncio.get_running_loop().time() > deadline:
                raise
        await asyncio.sleep(STALE_RETRY_S)


@router.get("/sessions/{session_id}/messages", responses=documented(404))
async def list_messages(
    session: OwnSession,
    store: StoreDep,
    since: Annotated[str | None, Query(max_length=64)] = None,
    before: Annotated[str | None, Query(max_length=64)] = None,
    limit: PageLimit = 50,
    cursor: PageCursor = None,
    include_superseded: Annotated[bool, Query()] = False,
    format: Annotated[Literal["full", "conversation"], Query()] = "full",  # noqa: A002 - the wire's name
) -> MessagesShown:
    """Messages after `since`, oldest first; `format=conversation` is what a model would see.

    `before` reads backwards: `latest`, or an id; `next_cursor` is then the next `before`.
    """
    conversation = format == "conversation"
    if before is not None:
        if since or cursor or conversation:
            raise ValidationFailed("before goes with limit and include_superseded only")
        return await store.aread(
            lambda db: _backwards(
                db, session.id, before, limit=limit, include_superseded=include_superseded
            )
        )

    def page(db: Db) -> MessagesShown:
        after = _seq(db, session.id, cursor or since)
        found = messages.page(
            db,
            session.id,
            after_seq=after,
            limit=limit,
            include_superseded=include_superseded and not conversation,
        )
        items = [
            message_json(message, causes)
            for message, causes in found
            # The root agent's model never sees what its subagents say to themselves.
            if not (conversation and message.invocation_id)
        ]
        more = len(found) == limit and found[-1][0].seq < messages.last_seq(db, session.id)
        following = found[-1][0].id if more else None
        shown_items = [turn_json(item) for item in items] if conversation else items
        return {"items": shown_items, "next_cursor": following}

    return await store.aread(page)


@router.post("/sessions/{session_id}/resume", responses=documented(404, 409))
async def resume_session(
    session: OwnSession,
    operator: CurrentOperator,
    commands: CommandsDep,
    store: StoreDep,
    command_id: CommandId,
) -> SessionShown:
    """Start the queued message now that there is a slot; never by itself (K-122)."""
    if session.state == State.PAUSED:
        raise Conflict("the session is paused: resume its checkpoint", {"state": session.state})
    command = Resume(command_id=command_id, user_id=operator.id)
    answer = await gone_as_conflict(commands.send(session, "resume", command))
    return as_answered(await shown(store, session.id), answer)


@router.delete("/sessions/{session_id}/queued-message", responses=documented(404, 409))
async def discard_message(
    session: OwnSession, operator: CurrentOperator, commands: CommandsDep, store: StoreDep
) -> SessionShown:
    """Drop the queued message; its run is cancelled."""
    command = Command(command_id=new_id(), user_id=operator.id)
    answer = await gone_as_conflict(commands.send(session, "discard", command))
    return as_answered(await shown(store, session.id), answer)


def as_answered(view: SessionShown, answer: Answer) -> SessionShown:
    """The session as the command left it, however far a quick run has come since."""
    state = State(answer.state)
    view["state"], view["allowed_actions"] = state.value, allowed_actions(state)
    if state in (State.RUNNING, State.QUEUED):
        view["active_run"] = answer.run_id
    if state is State.QUEUED:
        view["queued"], view["reason"] = True, answer.reason
    return view


def _stage(db: Db, session_id: str, message_id: str, body: MessageBody) -> None:
    if messages.find(db, message_id) is not None:
        return  # a repeated request whose first try was taken
    inbox.stage(
        db,
        message_id=message_id,
        session_id=session_id,
        content=body.content,
        model_override=body.model_override,
    )


def _accepted(db: Db, session_id: str, answer: Answer) -> AcceptedShown:
    message = messages.find(db, answer.message_id or "")
    run = runs.get(db, answer.run_id or "")
    assert message is not None, "an admitted message is stored"
    row: SessionRow = sessions.get(db, session_id)
    accepted: AcceptedShown = {
        "message": message_json(message, []),
        "run": run_views.view(db, run),
        "session": as_answered(session_views.view(db, row), answer),
    }
    if answer.queued:
        accepted["queued"], accepted["reason"] = True, answer.reason
    return accepted


def _backwards(
    db: Db, session_id: str, before: str, *, limit: int, include_superseded: bool
) -> MessagesShown:
    latest = before == LATEST
    end = messages.last_seq(db, session_id) + 1 if latest else _seq(db, session_id, before)
    found = messages.page_before(
        db, session_id, before_seq=end, limit=limit, include_superseded=include_superseded
    )
    more = len(found) == limit and found[0][0].seq > 1
    items = [message_json(message, causes) for message, causes in found]
    return {"items": items, "next_cursor": items[0]["id"] if more else None}


def _seq(db: Db, session_id: str, message_id: str | None) -> int:
    if message_id is None:
        return 0
    seq = messages.seq_in(db, session_id, message_id)
    if seq is None:
        raise ValidationFailed("no message of this session has that id")
    return seq
