"""Checkpoints: pause, look, edit prompts, go on, or go back."""

from __future__ import annotations

import asyncio
from contextlib import AbstractAsyncContextManager, nullcontext
from typing import Annotated, Any, Literal, NotRequired

from fastapi import APIRouter, Path, Query
from pydantic import Field
from typing_extensions import TypedDict

from api.dependencies import (
    CommandId,
    CommandsDep,
    CurrentOperator,
    OwnSession,
    PageCursor,
    PageLimit,
    StoreDep,
)
from api.errors import documented, gone_as_conflict
from api.models import RequestBody, Shown, Text, shows
from api.openapi import AnswerRoute
from api.paging import by_time, cut, read_time
from api.routes.messages import as_answered
from api.routes.sessions import shown
from api.staging import CONTENT_CHARS_MAX, staged
from holdfast.domain.clock import now_ms
from holdfast.domain.commands import Answer, Pause, Resume, RollBack
from holdfast.storage.database.engine import Db
from holdfast.storage.database.opening import OpenStore
from holdfast.storage.moves import checkpoints, prompt_edits
from holdfast.storage.moves.checkpoint_snapshots import CheckpointShown, checkpoint_json
from holdfast.storage.moves.prompt_edits import EditShown
from holdfast.storage.sessions.session_views import SessionShown

router = APIRouter(tags=["checkpoints"], route_class=AnswerRoute)
REASON_CHARS_MAX = 1000
MESSAGE_IDS_MAX = 10_000
FILES_WAIT_MS = 2_000
FILES_LOOK_MS = 20
CheckpointId = Annotated[str, Path(min_length=1, max_length=64)]
Target = Annotated[str, Path(min_length=1, max_length=512)]
MessageId = Annotated[Text, Field(max_length=64)]


class CheckpointsShown(TypedDict):
    """A page of checkpoints."""

    items: list[CheckpointShown]
    next_cursor: str | None


class RolledBackShown(TypedDict):
    """Where the session stands after a rollback."""

    session: SessionShown
    messages_superseded: int
    files: NotRequired[dict[str, list[str]]]


class PauseBody(RequestBody):
    """Why the session is paused."""

    reason: Text = Field(default="", max_length=REASON_CHARS_MAX)


class PromptBody(RequestBody):
    """The new text of a prompt."""

    content: Text = Field(min_length=1, max_length=prompt_edits.PROMPT_CHARS_MAX)


class ResumeBody(RequestBody):
    """Words of the operator for the model, or a word on a compaction that waits here."""

    message: Text | None = Field(default=None, min_length=1, max_length=CONTENT_CHARS_MAX)
    compaction: Literal["approve", "reject"] | None = None
    summary: Text | None = Field(default=None, max_length=500_000)
    superseded_message_ids: list[MessageId] | None = Field(default=None, max_length=MESSAGE_IDS_MAX)


class RollbackBody(RequestBody):
    """Whether files come back too; `undo_restore` takes the last restore back."""

    restore_files: bool = False
    undo_restore: bool = False


@router.post(
    "/sessions/{session_id}/checkpoints",
    status_code=201,
    response_description="paused",
    responses=documented(404, 409),
)
async def pause_session(
    session: OwnSession,
    operator: CurrentOperator,
    commands: CommandsDep,
    store: StoreDep,
    command_id: CommandId,
    body: PauseBody | None = None,
) -> CheckpointShown:
    """Pause the running session at a new checkpoint."""
    command = Pause(
        command_id=command_id,
        user_id=operator.id,
        checkpoint_id=command_id,
        reason=(body or PauseBody()).reason,
    )
    answer = await gone_as_conflict(commands.send(session, "checkpoint", command))
    await _files_saved(store, session.id, answer.checkpoint_id or command_id)
    return await _show(store, session.id, answer.checkpoint_id or command_id)


@router.get("/sessions/{session_id}/checkpoints", responses=documented(404))
async def list_checkpoints(
    session: OwnSession,
    store: StoreDep,
    include_archived: Annotated[bool, Query()] = False,
    limit: PageLimit = 50,
    cursor: PageCursor = None,
) -> CheckpointsShown:
    """The session's checkpoints, newest first."""

    def page(db: Db) -> CheckpointsShown:
        before = read_time(cursor)
        found = checkpoints.of_session(
            db, session.id, include_archived=include_archived, limit=limit + 1, before=before
        )
        rows, following = cut(found, limit, by_time)
        return {"items": [checkpoint_json(db, row) for row in rows], "next_cursor": following}

    return await store.aread(page)


@router.get("/sessions/{session_id}/checkpoints/{checkpoint_id}", responses=documented(404))
async def show_checkpoint(
    session: OwnSession, checkpoint_id: CheckpointId, store: StoreDep
) -> CheckpointShown:
    """One checkpoint with all that was in effect; a pending compaction is in it."""
    return await _show(store, session.id, checkpoint_id)


@router.put(
    "/sessions/{session_id}/checkpoints/{checkpoint_id}/prompts/{target}",
    responses=documented(404, 409),
)
async def edit_prompt(
    session: OwnSession,
    checkpoint_id: CheckpointId,
    target: Target,
    body: PromptBody,
    store: StoreDep,
) -> EditShown:
    """Replace an agent's prompt; it is in effect when the session goes on."""

    def edit(db: Db) -> EditShown:
        point = checkpoints.get(db, session.id, checkpoint_id)
        return prompt_edits.edit_json(
            prompt_edits.edit(db, store.blobs, point, target, body.content)
        )

    return await store.awrite(edit)


@router.get(
    "/sessions/{session_id}/checkpoints/{checkpoint_id}/prompts/{target}",
    responses=shows(200, Shown) | documented(404),
)
async def show_prompt(
    session: OwnSession, checkpoint_id: CheckpointId, target: Target, store: StoreDep
) -> dict[str, Any]:
    """An agent's prompt as it would be used on resume, and its hash."""

    def read(db: Db) -> dict[str, Any]:
        point = checkpoints.get(db, session.id, checkpoint_id)
        return prompt_edits.prompt_json(db, store.blobs, point, target)

    return await store.aread(read)


@router.post(
    "/sessions/{session_id}/checkpoints/{checkpoint_id}/resume", responses=documented(404, 409)
)
async def resume_checkpoint(
    session: OwnSession,
    checkpoint_id: CheckpointId,
    operator: CurrentOperator,
    commands: CommandsDep,
    store: StoreDep,
    command_id: CommandId,
    body: ResumeBody | None = None,
) -> SessionShown:
    """Go on from the pause point; needs a slot.

    A `message` is the result of the model's `checkpoint` call, or a message before its next call.
    """
    await _check(store, session.id, checkpoint_id)
    await _files_saved(store, session.id, checkpoint_id)
    wanted = body or ResumeBody()
    command = Resume(
        command_id=command_id,
        user_id=operator.id,
        checkpoint_id=checkpoint_id,
        compaction=wanted.compaction,
        review_id=await _stage_review(store, wanted),
        message_id=None if wanted.message is None else command_id,
    )
    async with _words_staged(store, session.id, command_id, wanted.message):
        answer = await gone_as_conflict(commands.send(session, "resume", command))
    return as_answered(await shown(store, session.id), answer)


@router.post(
    "/sessions/{session_id}/checkpoints/{checkpoint_id}/rollback",
    responses=documented(404, 409),
)
async def roll_back(
    session: OwnSession,
    checkpoint_id: CheckpointId,
    operator: CurrentOperator,
    commands: CommandsDep,
    store: StoreDep,
    command_id: CommandId,
    body: RollbackBody | None = None,
) -> RolledBackShown:
    """Go back to a checkpoint; what came after it is kept, superseded."""
    await _check(store, session.id, checkpoint_id)
    wanted = body or RollbackBody()
    command = RollBack(
        command_id=command_id,
        user_id=operator.id,
        checkpoint_id=checkpoint_id,
        restore_files=wanted.restore_files,
        undo_restore=wanted.undo_restore,
    )
    answer = await gone_as_conflict(commands.send(session, "rollback", command))
    return rolled_back(await shown(store, session.id), answer)


def rolled_back(session: SessionShown, answer: Answer) -> RolledBackShown:
    """What a rollback answers."""
    told: RolledBackShown = {
        "session": as_answered(session, answer),
        "messages_superseded": answer.messages_superseded,
    }
    if answer.files:
        told["files"] = answer.files
    return told


async def _show(store: OpenStore, session_id: str, checkpoint_id: str) -> CheckpointShown:
    return await store.aread(
        lambda db: checkpoint_json(db, checkpoints.get(db, session_id, checkpoint_id))
    )


async def _check(store: OpenStore, session_id: str, checkpoint_id: str) -> None:
    await store.aread(lambda db: checkpoints.get(db, session_id, checkpoint_id))


def _words_staged(
    store: OpenStore, session_id: str, message_id: str, words: str | None
) -> AbstractAsyncContextManager[None]:
    return nullcontext() if words is None else staged(store, session_id, message_id, words)


async def _files_saved(store: OpenStore, session_id: str, checkpoint_id: str) -> None:
    """Let a fresh checkpoint save its files first: going on at once would leave it without."""
    for _ in range(FILES_WAIT_MS // FILES_LOOK_MS):
        point = await store.aread(lambda db: checkpoints.get(db, session_id, checkpoint_id))
        saved = point.tree is not None or bool(point.tree_note)
        if saved or now_ms() - point.created_at > FILES_WAIT_MS:
            return
        await asyncio.sleep(FILES_LOOK_MS / 1000)


async def _stage_review(store: OpenStore, body: ResumeBody) -> str | None:
    """Keep the operator's own summary and choice where the worker finds them.

    Only their id travels to the workflow; the orphan sweep deletes the blob within a day.
    """
    given = body.model_dump(include={"summary", "superseded_message_ids"}, exclude_none=True)
    if not given:
        return None
    return (await asyncio.to_thread(store.blobs.put_json, given)).id
