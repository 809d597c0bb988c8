"""Content on its way to a session: staged, named in its command, and taken by a step."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from holdfast.domain.errors import Refusal
from holdfast.storage.database.engine import Db
from holdfast.storage.database.opening import OpenStore
from holdfast.storage.sessions import inbox, messages, waiting

CONTENT_CHARS_MAX = 1024 * 1024


@asynccontextmanager
async def staged(
    store: OpenStore,
    session_id: str,
    message_id: str,
    content: str,
    *,
    model_override: str | None = None,
) -> AsyncIterator[None]:
    """Stage the content for the command that is sent in here; a refusal takes it back."""

    def stage(db: Db) -> None:
        if messages.find(db, message_id) or waiting.find(db, message_id):
            return  # a repeated request whose first try was taken
        inbox.stage(
            db,
            message_id=message_id,
            session_id=session_id,
            content=content,
            model_override=model_override,
        )

    await store.awrite(stage)
    try:
        yield
    except Refusal as refusal:
        if refusal.status < 500:
            await store.awrite(lambda db: inbox.take(db, message_id))
        raise
