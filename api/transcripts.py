"""What a terminal showed, in three forms made from one: timed lines of JSON."""

from __future__ import annotations

import asyncio
import codecs
import json
from collections.abc import Iterator
from typing import Any

from api.services import Services
from api.terminals import refusal_of
from domain.errors import NotFound
from storage import ptys, transcripts
from storage.blobs import BlobMissing
from storage.tables_history import Pty
from terminal.errors import TerminalError
from terminal.showing import closing, read_timed

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
    lines = [json.loads(line) for line in timed.splitlines()]
    return _raw(lines) if form == "raw" else _cast(lines, pty)


async def file_closed(services: Services, pty_id: str) -> None:
    """Keep what a terminal showed that is over; upkeep does the same for those nobody closed."""
    shown = await closing(await services.terminals.client(), pty_id)
    await transcripts.file(services.store, pty_id, shown)


async def _kept(services: Services, pty: Pty) -> bytes:
    row = await services.store.aread(lambda db: ptys.transcript_of(db, pty.id))
    if row is None:
        raise NotFound(MISSING)
    try:
        return await asyncio.to_thread(services.store.blobs.read, row.transcript)
    except BlobMissing:
        raise NotFound(MISSING) from None


async def _live(services: Services, pty: Pty) -> bytes:
    client = await services.terminals.client()
    try:
        path = await client.transcript(pty.id)
    except TerminalError as error:
        raise refusal_of(error) from None
    return await asyncio.to_thread(read_timed, path)


def _raw(lines: list[dict[str, Any]]) -> bytes:
    return b"".join(line["data"].encode("latin-1") for line in lines)


def _cast(lines: list[dict[str, Any]], pty: Pty) -> bytes:
    """asciicast v2; a character may lie across two lines, so one decoder goes through all."""
    header = {
        "version": 2,
        "width": pty.cols,
        "height": pty.rows,
        "timestamp": pty.created_at // 1000,
    }
    decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def events() -> Iterator[str]:
        yield json.dumps(header)
        for line in lines:
            text = decoder.decode(line["data"].encode("latin-1"))
            if text:
                yield json.dumps([line["at_ms"] / 1000, "o", text])

    return "\n".join(events()).encode() + b"\n"
