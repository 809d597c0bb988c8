"""Back to any message: roll the session back to it, or send it again in other words."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path
from pydantic import Field

from api.dependencies import CommandId, CommandsDep, CurrentOperator, OwnSession, StoreDep
from api.errors import documented, gone_as_conflict
from api.models import RequestBody, Text
from api.openapi import AnswerRoute
from api.routes.checkpoints import MessageId, RolledBackShown, rolled_back
from api.routes.messages import AcceptedShown, MessageBody, send_message
from api.routes.sessions import shown
from api.staging import CONTENT_CHARS_MAX
from holdfast.domain.commands import NewMessage, RollBack
from holdfast.domain.errors import ValidationFailed
from holdfast.storage.database.engine import Db
from holdfast.storage.database.tables import Message
from holdfast.storage.moves import message_points, points

router = APIRouter(tags=["checkpoints"], route_class=AnswerRoute)
MessageName = Annotated[str, Path(min_length=1, max_length=64)]


class MessageRollbackBody(RequestBody):
    """The operator's message to go back to, and whether files come back too."""

    message_id: MessageId
    restore_files: bool = False


class ResendBody(RequestBody):
    """The message in other words; the same ones when nothing is given."""

    content: Text | None = Field(default=None, min_length=1, max_length=CONTENT_CHARS_MAX)
    restore_files: bool = False


@router.post("/sessions/{session_id}/rollback", responses=documented(404, 409))
async def roll_back_to_message(
    session: OwnSession,
    body: MessageRollbackBody,
    operator: CurrentOperator,
    commands: CommandsDep,
    store: StoreDep,
    command_id: CommandId,
) -> RolledBackShown:
    """Go back to right before a message of the operator; it and all since is superseded."""
    await store.aread(lambda db: _operators_message(db, session.id, body.message_id))
    command = RollBack(
        command_id=command_id,
        user_id=operator.id,
        checkpoint_id=command_id,
        message_id=body.message_id,
        restore_files=body.restore_files,
    )
    answer = await gone_as_conflict(commands.send(session, "rollback", command))
    return rolled_back(await shown(store, session.id), answer)


@router.post(
    "/sessions/{session_id}/messages/{message_id}/resend",
    status_code=202,
    response_description="taken: running, or queued",
    responses=documented(404, 409, 410),
)
async def resend_message(
    session: OwnSession,
    message_id: MessageName,
    operator: CurrentOperator,
    commands: CommandsDep,
    store: StoreDep,
    command_id: CommandId,
    body: ResendBody | None = None,
) -> AcceptedShown:
    """Go back to right before the message and send it again, edited or not."""
    wanted = body or ResendBody()
    message = await store.aread(lambda db: _operators_message(db, session.id, message_id))
    back = RollBack(
        command_id=f"{command_id}.back",
        user_id=operator.id,
        checkpoint_id=f"{command_id}.back",
        message_id=message_id,
        restore_files=wanted.restore_files,
    )
    await gone_as_conflict(commands.send(session, "rollback", back))
    again = NewMessage(command_id=command_id, user_id=operator.id, message_id=command_id)
    content = wanted.content or message.content
    return await send_message(store, commands, session, again, MessageBody(content=content))


def _operators_message(db: Db, session_id: str, message_id: str) -> Message:
    message = points.seen_message(db, session_id, message_id)
    if message.role != "operator":
        raise ValidationFailed(message_points.OPERATOR_ONLY)
    return message
