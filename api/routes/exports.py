"""Sessions on their way out and in: JSON, Markdown, HTML, lines of JSON, and a Hermes file."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query, Request
from fastapi.responses import Response, StreamingResponse
from starlette.concurrency import iterate_in_threadpool

from api.dependencies import CurrentOperator, OwnSession, StoreDep
from api.errors import documented
from api.models import Shown, shows
from holdfast.domain.errors import BadRequest, Forbidden, ValidationFailed
from holdfast.storage.database.engine import Db
from holdfast.storage.database.opening import OpenStore
from holdfast.storage.projects import operators
from holdfast.storage.sessions.message_views import MessageShown
from holdfast.storage.sessions.session_views import SessionShown
from holdfast.storage.transfer.export_document import document, documents
from holdfast.storage.transfer.export_pages import markdown, page
from holdfast.storage.transfer.import_document import import_document
from holdfast.storage.transfer.import_hermes import import_hermes

router = APIRouter(tags=["export"])
LINES_MAX = 10_000
PATH_CHARS_MAX = 4_096
_KINDS = {"json": "application/json", "md": "text/markdown", "html": "text/html"}
_NDJSON = "application/x-ndjson"
EXPORTED: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "the session",
        "content": {"application/json": {}, "text/markdown": {}, "text/html": {}},
    }
}
LINES: dict[int | str, dict[str, Any]] = {
    200: {"description": "one session on each line", "content": {_NDJSON: {}}}
}
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
    body = await request.body()
    given = await asyncio.to_thread(_documents, body)
    if len(given) == 1 and isinstance(given[0], dict) and set(given[0]) == {"hermes_path"}:
        path = _hermes_path(operator.name, given[0]["hermes_path"])
        return await asyncio.to_thread(import_hermes, store, operator.id, path)
    results = [await asyncio.to_thread(import_document, store, operator.id, item) for item in given]
    if len(results) == 1:
        return results[0]
    return {
        "imported": sum(1 for result in results if result["imported"]),
        "skipped": sum(1 for result in results if not result["imported"]),
        "items": results,
    }


def _lines(store: OpenStore, operator_id: str, source: str | None, redact: bool) -> Iterator[bytes]:
    for exported in documents(store, operator_id, source=source, redacted=redact):
        yield json.dumps(exported, ensure_ascii=False).encode("utf-8", "replace") + b"\n"


def _documents(body: bytes) -> list[Any]:
    try:
        text = body.decode()
        try:
            return [json.loads(text)]
        except ValueError:
            lines = [line for line in text.split("\n") if line.strip()]
            if len(lines) < 2:
                raise
            if len(lines) > LINES_MAX:
                raise ValidationFailed(f"at most {LINES_MAX} lines at once") from None
            return [json.loads(line) for line in lines]
    except (ValueError, RecursionError):
        raise BadRequest("the body is neither JSON nor lines of JSON") from None


def _hermes_path(operator_name: str, given: Any) -> Path:
    """A path on the server is for whoever runs it."""
    if operator_name != operators.DEFAULT_OPERATOR:
        raise Forbidden("only the default operator may import a file of this machine")
    if not isinstance(given, str) or not 0 < len(given) <= PATH_CHARS_MAX or "\0" in given:
        raise ValidationFailed("hermes_path is the path of a state.db")
    return Path(given).expanduser()
