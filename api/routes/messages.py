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
from api.staging import CONTENT_CHARS_MAX, staged
from holdfast.domain.commands import INTERRUPT, Answer, Command, NewMessage, Resume
from holdfast.domain.errors import Conflict, Unavailable, ValidationFailed
from holdfast.domain.ids import new_id
from holdfast.domain.lifecycle import State, allowed_actions
from holdfast.storage.database.engine import Db
from holdfast.storage.database.opening import OpenStore
from holdfast.storage.database.tables import SessionRow
from holdfast.storage.sessions import messages, run_views, runs, session_views, sessions, waiting
from holdfast.storage.sessions.message_views import MessageShown, message_json, turn_json
from holdfast.storage.sessions.run_views import RunShown
from holdfast.storage.sessions.session_views import SessionShown
from holdfast.storage.sessions.waiting import WaitingShown, waiting_json
from holdfast.temporal.sessions import SessionCommands

router = APIRouter(tags=["messages"], route_class=AnswerRoute)
LATEST = "latest"
STALE_S, STALE_RETRY_S = 10.0, 0.25
STOP_S, STOP_LOOK_S = 30.0, 0.02


class MessageBody(RequestBody):
    """A message, what becomes of it while the session is busy, and the model from now on."""

    content: Text = Field(min_length=1, max_length=CONTENT_CHARS_MAX)
    model_override: Text | None = Field(default=None, max_length=200)
    when_busy: Literal["reject", "queue", "steer", "interrupt"] = "reject"


class AcceptedShown(TypedDict):
    """A message that was taken."""

    message: MessageShown | WaitingShown
    run: RunShown | None
    session: SessionShown
    waiting: NotRequired[bool]
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
    """Stage the content, then ask the session to take it.

    While it is busy: `queue` waits for a run of its own, `steer` is said before the next model
    call of the active run, `interrupt` ends that run and begins another; `reject` is refused.
    """
    if body.model_override is not None:
        services.configuration.check_model(body.model_override)
    command = NewMessage(
        command_id=command_id,
        user_id=operator.id,
        message_id=command_id,
        when_busy=body.when_busy,
    )
    return await send_message(services.store, commands, session, command, body)


async def send_message(
    store: OpenStore,
    commands: SessionCommands,
    session: SessionRow,
    command: NewMessage,
    body: MessageBody,
) -> AcceptedShown:
    """Stage the content under the id of the message, then ask the session to take it."""
    words = staged(
        store, session.id, command.message_id, body.content, model_override=body.model_override
    )
    async with words:
        answer = await _sent(commands, store, session, command)
    if answer.waiting and command.when_busy == INTERRUPT:
        await begun(store, answer)
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


async def begun(store: OpenStore, answer: Answer) -> None:
    """Wait until the run that an interrupt was promised has begun; the one before stops first."""
    deadline = asyncio.get_running_loop().time() + STOP_S

    def look(db: Db) -> tuple[bool, bool]:
        found = runs.find(db, answer.run_id or "") is not None
        return found, waiting.find(db, answer.message_id or "") is not None

    while True:
        found, waits = await store.aread(look)
        if found:
            return
        if not waits:
            raise Conflict("the message was taken back meanwhile")
        if asyncio.get_running_loop().time() > deadline:
            raise Unavailable("the run is still being stopped; the message begins right after")
        await asyncio.sleep(STOP_LOOK_S)


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
    if state in (State.RUNNING, State.QUEUED) and answer.run_id is not None:
        view["active_run"] = answer.run_id
    if state is State.QUEUED:
        view["queued"], view["reason"] = True, answer.reason
    return view


def _accepted(db: Db, session_id: str, answer: Answer) -> AcceptedShown:
    run = runs.find(db, answer.run_id) if answer.run_id else None
    session = session_views.view(db, sessions.get(db, session_id))
    accepted: AcceptedShown = {
        "message": _message(db, answer.message_id or ""),
        "run": None if run is None else run_views.view(db, run),
        "session": session if answer.waiting else as_answered(session, answer),
    }
    if run is None:
        accepted["waiting"] = True
    if answer.queued:
        accepted["queued"], accepted["reason"] = True, answer.reason
    return accepted


def _message(db: Db, message_id: str) -> MessageShown | WaitingShown:
    said, row = messages.find(db, message_id), waiting.find(db, message_id)
    if said is not None:
        return message_json(said, [])
    if row is None:
        raise Conflict("the message was taken back meanwhile")
    return waiting_json(row)


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
