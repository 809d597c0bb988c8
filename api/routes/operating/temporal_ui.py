"""The Temporal UI below /temporal/, for the administrator: it shows and signals every session.

The embedded server has no login of its own, so ours stands in front, with the same demands on the
Origin as everywhere: a page on another site cannot use it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

from fastapi import APIRouter, Request, Response
from fastapi.responses import StreamingResponse

from api import auth
from api.dependencies import CurrentOperator, ServicesDep
from holdfast.domain.errors import Forbidden
from holdfast.domain.wire import TEMPORAL_UI_PATH
from holdfast.storage.projects import operators

router = APIRouter(include_in_schema=False)
METHODS = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"]
ASKED = ("accept", "accept-language", "caller-type", "content-type", "x-csrf-token")
ANSWERED = ("content-type", "last-modified", "location", "vary")
CSRF_COOKIE = "_csrf"
# The UI's own page begins with an inline script; nothing leads out of this server.
POLICY = (
    "default-src 'self'; script-src 'self' 'unsafe-inline'; style-src 'self' 'unsafe-inline'; "
    "img-src 'self' data:; font-src 'self' data:; worker-src 'self' blob:; base-uri 'none'; "
    "form-action 'self'; frame-ancestors 'none'"
)


@router.api_route(TEMPORAL_UI_PATH, methods=METHODS)
@router.api_route(TEMPORAL_UI_PATH + "/{path:path}", methods=METHODS)
async def temporal_ui(
    request: Request, operator: CurrentOperator, services: ServicesDep
) -> Response:
    """Pass one request on to the UI, without our token and cookie."""
    if operator.name != operators.DEFAULT_OPERATOR:
        raise Forbidden("the Temporal UI shows the sessions of all: it is for the operator `local`")
    async with AsyncExitStack() as stack:
        answer = await stack.enter_async_context(
            services.temporal_ui.ask(
                request.method, _target(request), _asked(request), await request.body()
            )
        )
        headers = {name: answer.headers[name] for name in ANSWERED if name in answer.headers}
        headers |= {"Content-Security-Policy": POLICY, "Referrer-Policy": "no-referrer"}
        shown = StreamingResponse(
            _body(answer.aiter_raw(), stack.pop_all()), answer.status_code, headers
        )
        token = answer.cookies.get(CSRF_COOKIE)
        if token:
            secure = auth.secure_cookies(services, request)
            shown.set_cookie(
                CSRF_COOKIE, token, path=TEMPORAL_UI_PATH, samesite="strict", secure=secure
            )
        return shown


async def _body(chunks: AsyncIterator[bytes], stack: AsyncExitStack) -> AsyncIterator[bytes]:
    async with stack:
        async for chunk in chunks:
            yield chunk


def _target(request: Request) -> str:
    """The address as it was asked for, escapes and query included."""
    path: bytes = request.scope.get("raw_path") or request.url.path.encode()
    query: bytes = request.scope["query_string"]
    return (path + (b"?" + query if query else b"")).decode("latin-1")


def _asked(request: Request) -> dict[str, str]:
    headers = {name: request.headers[name] for name in ASKED if name in request.headers}
    if CSRF_COOKIE in request.cookies:
        headers["cookie"] = f"{CSRF_COOKIE}={request.cookies[CSRF_COOKIE]}"
    return {**headers, "accept-encoding": "identity"}
