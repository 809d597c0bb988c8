"""The page: the files of `web/`, and nothing else, read once and served without a token."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from importlib.resources import files
from typing import Annotated

from fastapi import APIRouter, Path, Request, Response

from holdfast.domain.errors import NotFound

router = APIRouter(include_in_schema=False)
FIRST = "index.html"
KINDS = {".html": "text/html", ".js": "text/javascript", ".css": "text/css"}
# No script, style or connection but our own: whatever a model says, it stays words.
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)


@dataclass(frozen=True)
class Asset:
    """One file as it is sent."""

    body: bytes
    kind: str
    tag: str


def _read() -> dict[str, Asset]:
    found: dict[str, Asset] = {}
    for file in (files("holdfast") / "page").iterdir():
        kind = KINDS.get(f".{file.name.rpartition('.')[2]}")
        if kind is not None:
            body = file.read_bytes()
            tag = f'"{hashlib.sha256(body).hexdigest()[:32]}"'
            found[file.name] = Asset(body, f"{kind}; charset=utf-8", tag)
    return found


ASSETS = _read()


@router.get("/")
async def page(request: Request) -> Response:
    """Where a browser begins."""
    return _answer(request, FIRST)


@router.get("/page/{name}")
async def asset(name: Annotated[str, Path(max_length=64)], request: Request) -> Response:
    """A part of the page."""
    return _answer(request, name)


def _answer(request: Request, name: str) -> Response:
    found = ASSETS.get(name)
    if found is None:
        raise NotFound("The page has no such part.")
    headers = {
        "Cache-Control": "no-cache",  # kept, but asked for again: an upgrade shows at once
        "Content-Security-Policy": POLICY,
        "ETag": found.tag,
        "Referrer-Policy": "no-referrer",
    }
    if request.headers.get("if-none-match") == found.tag:
        return Response(status_code=304, headers=headers)
    return Response(found.body, media_type=found.kind, headers=headers)
