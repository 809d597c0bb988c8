"""What a terminal showed, in three forms made from one: timed lines of JSON."""

from __future__ import annotations

import asyncio

from api.services import Services
from api.terminals import refusal_of
from holdfast.domain.errors import NotFound
from holdfast.storage.database.blobs import BlobMissing
from holdfast.storage.database.tables_history import Pty
from holdfast.storage.sessions import ptys
from holdfast.terminal.errors import TerminalError
from holdfast.terminal.showing import asciicast, closing, raw, read_timed, transcript_copy

FORMS = {
    "raw": "application/octet-stream",
    "timed": "application/x-ndjson",
    "cast": "application/x-asciicast",
}
MISSING = "This terminal left no transcript."


async def transcript(services: Services, pty: Pty, form: str) -> bytes:
    """The whole output of a terminal, alive or closed, in this form."""
    timed = await _kept(services, pty) if pty.state == "closed" else await _live(services, pty)
    if form == "timed":
        return timed
    try:
        return await asyncio.to_thread(_rendered, timed, pty, form)
    except (ValueError, KeyError, TypeError, AttributeError):  # an import brings what it likes
        raise NotFound("The transcript of this terminal is damaged.") from None


async def file_closed(services: Services, pty: Pty) -> None:
    """Keep what a terminal showed that is over; upkeep does the same for those nobody closed."""
    shown = await closing(await services.terminals.client(pty.host_id), pty.id)
    await ptys.close_with_transcript(services.store, pty.id, shown)


async def _kept(services: Services, pty: Pty) -> bytes:
    row = await services.store.aread(lambda db: ptys.transcript_of(db, pty.id))
    if row is None:
        raise NotFound(MISSING)
    try:
        return await asyncio.to_thread(services.store.blobs.read, row.transcript)
    except BlobMissing:
        raise NotFound(MISSING) from None


async def _live(services: Services, pty: Pty) -> bytes:
    client = await services.terminals.client(pty.host_id)
    try:
        async with transcript_copy(client, pty.id) as path:
            return await asyncio.to_thread(read_timed, path)
    except TerminalError as error:
        raise refusal_of(error) from None


def _rendered(timed: bytes, pty: Pty, form: str) -> bytes:
    if form == "raw":
        return raw(timed)
    began = pty.created_at // 1000
    return asciicast(timed, cols=pty.cols, rows=pty.rows, timestamp=began)
