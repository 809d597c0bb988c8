"""Compactions: make a context shorter, see what went, say what you think of it, take it back."""

from __future__ import annotations

import asyncio
from typing import Annotated, Literal

from fastapi import APIRouter, Path
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
from api.errors import documented
from api.models import RequestBody, Text
from api.openapi import AnswerRoute
from api.paging import by_time, cut, read_time
from holdfast.domain.commands import Compact
from holdfast.storage.database.engine import Db
from holdfast.storage.database.opening import OpenStore
from holdfast.storage.moves import compactions
from holdfast.storage.moves.compactions import CompactionShown

router = APIRouter(tags=["compactions"], route_class=AnswerRoute)
CompactionId = Annotated[str, Path(min_length=1, max_length=64)]
Strategy = Literal["drop", "summarize", "delegate", "checkpoint"]


class CompactionsShown(TypedDict):
    """A page of records."""

    items: list[CompactionShown]
    next_cursor: str | None


class CompactBody(RequestBody):
    """How; without a word, as the project file says."""

    strategy: Strategy | None = None
    agent_path: Annotated[Text, Field(min_length=1, max_length=1000)] = "primary"
    focus: Annotated[Text, Field(min_length=1, max_length=1000)] | None = None


class Feedback(RequestBody):
    """What the operator thinks of it; null takes it back."""

    operator_flag: Literal["good", "bad", "neutral"] | None = None
    operator_notes: Annotated[Text, Field(max_length=compactions.NOTES_CHARS_MAX)] | None = None


@router.post("/sessions/{session_id}/compact", responses=documented(404, 409))
async def compact_session(
    session: OwnSession,
    operator: CurrentOperator,
    commands: CommandsDep,
    store: StoreDep,
    command_id: CommandId,
    body: CompactBody | None = None,
) -> CompactionShown:
    """Compact the context of an idle session now; a summary keeps the `focus` above all."""
    wanted = body or CompactBody()
    command = Compact(
        command_id=command_id,
        user_id=operator.id,
        compaction_id=command_id,
        strategy=wanted.strategy,
        agent_path=wanted.agent_path,
        focus_id=await _stage_focus(store, wanted.focus),
    )
    answer = await commands.send(session, "compact", command)
    return await _show(store, session.id, answer.compaction_id or command_id)


@router.get("/sessions/{session_id}/compactions", responses=documented(404))
async def list_compactions(
    session: OwnSession, store: StoreDep, limit: PageLimit = 50, cursor: PageCursor = None
) -> CompactionsShown:
    """The session's compactions, newest first."""

    def page(db: Db) -> CompactionsShown:
        found = compactions.page(db, session.id, limit=limit + 1, before=read_time(cursor))
        rows, following = cut(found, limit, by_time)
        return {"items": [compactions.view(row) for row in rows], "next_cursor": following}

    return await store.aread(page)


@router.get("/sessions/{session_id}/compactions/{compaction_id}", responses=documented(404))
async def show_compaction(
    session: OwnSession, compaction_id: CompactionId, store: StoreDep
) -> CompactionShown:
    """One compaction; `dropped` holds the messages that it took out."""
    return await _show(store, session.id, compaction_id)


@router.patch("/sessions/{session_id}/compactions/{compaction_id}", responses=documented(404))
async def give_feedback(
    session: OwnSession, compaction_id: CompactionId, body: Feedback, store: StoreDep
) -> CompactionShown:
    """Flag a compaction and note why."""
    given = body.model_dump(exclude_unset=True)
    changed = await store.awrite(
        lambda db: compactions.give_feedback(db, session.id, compaction_id, given)
    )
    return compactions.view(changed)


@router.post(
    "/sessions/{session_id}/compactions/{compaction_id}/undo",
    responses=documented(404, 409),
)
async def undo_compaction(
    session: OwnSession, compaction_id: CompactionId, store: StoreDep
) -> CompactionShown:
    """Take the newest compaction back: its messages count again, its summary does not."""
    await store.awrite(lambda db: compactions.undo(db, session.id, compaction_id))
    return await _show(store, session.id, compaction_id)


async def _stage_focus(store: OpenStore, focus: str | None) -> str | None:
    """Keep the focus where the worker finds it: a blob that the orphan sweep deletes in a day."""
    if focus is None:
        return None
    return (await asyncio.to_thread(store.blobs.put_json, focus)).id


async def _show(store: OpenStore, session_id: str, compaction_id: str) -> CompactionShown:
    def read(db: Db) -> CompactionShown:
        record = compactions.get(db, session_id, compaction_id)
        return compactions.view(record, compactions.dropped(db, record))

    return await store.aread(read)
