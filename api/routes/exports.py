"""Sessions on their way out and in: JSON, Markdown, HTML, lines of JSON, and a Hermes file."""

from __future__ import annotations

import asyncio
import json
import re
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query, Request
from fastapi.responses import Response, StreamingResponse
from starlette.concurrency import iterate_in_threadpool

from api.dependencies import CurrentOperator, OwnSession, StoreDep
from api.errors import documented
from api.models import Shown, shows
from holdfast.domain.errors import Forbidden, ValidationFailed
from holdfast.storage.database.engine import Db
from holdfast.storage.database.opening import OpenStore
from holdfast.storage.projects import operators
from holdfast.storage.sessions.message_views import MessageShown
from holdfast.storage.sessions.session_views import SessionShown
from holdfast.storage.transfer.export_document import document, documents
from holdfast.storage.transfer.export_pages import markdown, page
from holdfast.storage.transfer.importers.importer import Imported, Source
from holdfast.storage.transfer.importers.table import import_from

router = APIRouter(tags=["export"])
PATH_CHARS_MAX = 4_096
IDS_SHOWN_MAX = 500
# A document may take some hundred megabytes while it is stored.
_ONE_AT_A_TIME = asyncio.Semaphore(1)
_HERMES_REQUEST = re.compile(rb'\s*\{\s*"hermes_path"\s*:')
_KINDS = {"json": "application/json", "md": "text/markdown", "html": "text/html"}
_NDJSON = "application/x-ndjson"
Redact = Annotated[bool, Query(description="leave out what looks like a secret")]


class ExportShown(Shown):
    """An export; one that is not redacted has an `archive` too, for the import."""

    format: str
    version: int
    exported_at: int
    redacted: bool
    session: SessionShown
    messages: list[MessageShown]


@router.get(
    "/sessions/{session_id}/export",
    responses=shows(200, ExportShown, also=("text/markdown", "text/html")) | documented(404),
)
async def export_session(
    session: OwnSession,
    store: StoreDep,
    format: Annotated[Literal["json", "md", "html"], Query()] = "json",  # noqa: A002 - the wire's name
    redact: Redact = False,
) -> Response:
    """One session; only the whole JSON can be imported again."""
    only_read = redact or format != "json"

    def make(db: Db) -> str:
        exported = document(db, store.blobs, session, archived=not only_read, redacted=redact)
        if format == "json":
            return json.dumps(exported, ensure_ascii=False)
        return markdown(exported) if format == "md" else page(exported)

    text = await store.aread(make)
    name = f"{session.id}.{format}"
    return Response(
        text.encode("utf-8", "replace"),
        media_type=f"{_KINDS[format]}; charset=utf-8",
        headers={
            "Content-Disposition": f'inline; filename="{name}"',
            "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'",
        },
    )


@router.get("/export", responses=shows(200, Shown, also=("application/x-ndjson",)))
async def export_all(
    operator: CurrentOperator,
    store: StoreDep,
    source: Annotated[str | None, Query(max_length=64)] = None,
    redact: Redact = False,
) -> StreamingResponse:
    """Every session of the caller, one on each line, each with how far the export is."""
    lines = _lines(store, operator.id, source, redact)
    return StreamingResponse(iterate_in_threadpool(lines), media_type=_NDJSON)


@router.post(
    "/sessions/import", status_code=201, responses=shows(201, Shown) | documented(404, 409)
)
async def import_sessions(
    request: Request, operator: CurrentOperator, store: StoreDep
) -> dict[str, Any]:
    """One export, or lines of them; or `{"hermes_path": …}`, a file on this machine."""
    with tempfile.NamedTemporaryFile(prefix="holdfast-import-") as body:
        async for chunk in request.stream():
            await asyncio.to_thread(body.write, chunk)
        body.flush()
        source = Source(Path(body.name))
        path = await asyncio.to_thread(_hermes_path, operator.name, source.head())
        async with _ONE_AT_A_TIME:
            if path is not None:
                done = await asyncio.to_thread(
                    import_from, store, operator.id, "hermes", Source(path)
                )
                return _summary("hermes", done)
            done = await asyncio.to_thread(import_from, store, operator.id, "holdfast", source)
    if len(done) == 1:
        return {**done[0]}
    new = sum(one["imported"] for one in done)
    return {"imported": new, "skipped": len(done) - new, "items": done}


def _lines(store: OpenStore, operator_id: str, source: str | None, redact: bool) -> Iterator[bytes]:
    for exported in documents(store, operator_id, source=source, redacted=redact):
        yield json.dumps(exported, ensure_ascii=False).encode("utf-8", "replace") + b"\n"


def _hermes_path(operator_name: str, body: bytes) -> Path | None:
    """The file of this machine that the body asks for: only for whoever runs the server."""
    try:
        given = json.loads(body) if _HERMES_REQUEST.match(body) else None
    except (ValueError, RecursionError):
        return None
    if not isinstance(given, dict) or set(given) != {"hermes_path"}:
        return None
    if operator_name != operators.DEFAULT_OPERATOR:
        raise Forbidden("only the default operator may import a file of this machine")
    path = given["hermes_path"]
    if not isinstance(path, str) or not 0 < len(path) <= PATH_CHARS_MAX or "\0" in path:
        raise ValidationFailed("hermes_path is the path of a state.db")
    return Path(path).expanduser()


def _summary(origin: str, done: list[Imported]) -> dict[str, Any]:
    new = [one for one in done if one["imported"]]
    return {
        "origin": origin,
        "imported": len(new),
        "skipped": len(done) - len(new),
        "messages": sum(one["messages"] for one in new),
        "session_ids": [one["session_id"] for one in new[:IDS_SHOWN_MAX]],
    }
